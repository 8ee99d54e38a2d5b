-- Writes one page of a load, once and in order.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  loader token, page, kind, then for 'items': item, units ... · for 'holds': user, hold ... ·
--       for 'closed': order id ...
-- Answers 'LOADED', 'NOT_LOADER' or 'REFUSED'.

local cfg = redis.call('HMGET', KEYS[1], 'phase', 'token', 'pages')
if cfg[1] ~= 'loading' or cfg[2] ~= ARGV[1] then return 'NOT_LOADER' end
local page, pages = tonumber(ARGV[2]), tonumber(cfg[3])
if page < pages then return 'LOADED' end
if page > pages then return 'REFUSED' end

if ARGV[3] == 'items' then
    for i = 4, #ARGV, 2 do
        redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
        redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
    end
elseif ARGV[3] == 'holds' then
    local free, holds_of = {}, {}
    for i = 4, #ARGV, 2 do
        local user, hold = ARGV[i], ARGV[i + 1]
        local id, item, units = string.match(hold, '^(%S+) (%S+) (%S+)')
        if free[item] == nil then free[item] = tonumber(redis.call('HGET', KEYS[2], item) or false) end
        if not free[item] or free[item] < tonumber(units) then return 'REFUSED' end
        free[item] = free[item] - units
        local holds = holds_of[user] or redis.call('HGET', KEYS[4], user)
        if holds and string.find('\n' .. holds, '\n' .. id .. ' ', 1, true) then return 'REFUSED' end
        holds_of[user] = holds and (holds .. '\n' .. hold) or hold
    end
    for user, holds in pairs(holds_of) do redis.call('HSET', KEYS[4], user, holds) end
    redis.call('HINCRBY', KEYS[1], 'holds', (#ARGV - 3) / 2)
    for item, units in pairs(free) do redis.call('HSET', KEYS[2], item, string.format('%.0f', units)) end
else
    for i = 4, #ARGV do redis.call('SADD', KEYS[6], ARGV[i]) end
end
redis.call('HINCRBY', KEYS[1], 'pages', 1)
return 'LOADED'
