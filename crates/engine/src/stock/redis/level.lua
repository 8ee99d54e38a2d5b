-- The bucket's figures, read in one step.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  now in ms ('' = this server's clock)
-- Answers nothing when the bucket is missing or damaged, else {phase, state, opens, closes, limit, seq,
-- pages, now, holds, unconfirmed, when the oldest of them was reserved or '',
-- item, free, allocated ...}.

local cfg = redis.call('HMGET', KEYS[1], '', 'phase', 'state', 'opens', 'closes', 'limit', 'seq', 'pages', 'holds')
if not cfg[1] then return false end
local now = ARGV[1]
if now == '' then
    local time = redis.call('TIME')
    now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
if not cfg[6] then
    if cfg[2] ~= 'fenced' then return false end
    return {'fenced', 'draft', '0', '0', '0', '0', '0', now, '0', 0, ''}
end
local whole = redis.call('HEXISTS', KEYS[2], '') == 1 and redis.call('HEXISTS', KEYS[3], '') == 1
    and redis.call('HEXISTS', KEYS[4], '') == 1 and redis.call('ZSCORE', KEYS[5], '')
    and redis.call('SISMEMBER', KEYS[6], '') == 1 and redis.call('HEXISTS', KEYS[7], '') == 1
if not whole and cfg[2] ~= 'fenced' then return false end

local oldest = ''
local first = redis.call('ZRANGE', KEYS[5], 1, 1)[1]
if first then
    local id, user = string.sub(first, 1, 32), string.sub(first, 33)
    for hold in string.gmatch(redis.call('HGET', KEYS[4], user) or '', '[^\n]+') do
        local other, at = string.match(hold, '^(%S+) %S+ %S+ %S+ %S+ (%S+)')
        if other == id then oldest = at end
    end
end
local level = {cfg[2], cfg[3], cfg[4], cfg[5], cfg[6], cfg[7], cfg[8], now, cfg[9],
    math.max(redis.call('ZCARD', KEYS[5]) - 1, 0), oldest}
local allocated = redis.call('HGETALL', KEYS[3])
for i = 1, #allocated, 2 do
    if allocated[i] ~= '' then
        level[#level + 1] = allocated[i]
        level[#level + 1] = redis.call('HGET', KEYS[2], allocated[i]) or '0'
        level[#level + 1] = allocated[i + 1]
    end
end
return level
