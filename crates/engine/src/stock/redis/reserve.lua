-- Decides a batch of wishes in one step, in order. All checks come before the first write, since a
-- script that fails midway is not rolled back.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  now in ms ('' = this server's clock), epoch, item, units,
--       then per wish: order id, user, '' or 'item units retake trace'
-- Answers {'NOT_LOADED'} or {'FENCED'} for all, or {now, seq as found, seq, one answer per wish}; what a
-- fenced bucket found is -1, since nothing is concluded from it any more.

local cfg = redis.call('HMGET', KEYS[1], '', 'phase', 'state', 'opens', 'closes', 'limit', 'seq', 'holds')
if not cfg[1] or cfg[2] == 'loading' then return {'NOT_LOADED'} end
local fenced = cfg[2] == 'fenced'
if not cfg[6] then return {fenced and 'FENCED' or 'NOT_LOADED'} end

local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local limit, seq = tonumber(cfg[6]), tonumber(cfg[7])
local count = (#ARGV - 4) / 3
local ids, users = {''}, {''}
for i = 1, count do
    ids[i + 1] = ARGV[2 + 3 * i]
    users[i + 1] = ARGV[3 + 3 * i]
end
local bought = redis.call('HMGET', KEYS[4], unpack(users))
local gone = redis.call('SMISMEMBER', KEYS[6], unpack(ids))
-- The empty name stands in every key that was loaded: where it is missing, the key was lost.
local whole = bought[1] and gone[1] == 1 and redis.call('ZSCORE', KEYS[5], '')
    and redis.call('HEXISTS', KEYS[2], '') == 1 and redis.call('HEXISTS', KEYS[3], '') == 1
    and redis.call('HEXISTS', KEYS[7], '') == 1
if not whole then return {'NOT_LOADED'} end

local outside
local opens, closes = tonumber(cfg[4]), tonumber(cfg[5])
if now >= closes or cfg[3] == 'closed' then
    outside = 'ENDED'
elseif now < opens then
    outside = string.format('EARLY %.0f', opens - now)
elseif cfg[3] ~= 'open' then
    outside = 'NOT_OPEN'
end

-- What this call changes, written at its end.
local free, holds_of, entries = {}, {}, {}
local added, changed_users, changed_items = {}, {}, {}

local function free_of(item)
    if free[item] == nil then free[item] = tonumber(redis.call('HGET', KEYS[2], item) or false) or false end
    return free[item]
end

local function decide(id, user, closed, item, units, retake, trace, holds)
    local held = 0
    if holds then
        local orders = {}
        for hold in string.gmatch(holds, '[^\n]+') do
            local other, its_item, its_units = string.match(hold, '^(%S+) (%S+) (%S+)')
            if other == id then
                if its_item ~= item or tonumber(its_units) ~= units then return 'MISMATCH' end
                local waiting = added[id] or redis.call('ZSCORE', KEYS[5], id .. user)
                return (waiting and 'BEFORE 1 ' or 'BEFORE 0 ') .. hold
            end
            held = held + its_units
            orders[#orders + 1] = other
        end
        if closed == 1 then return 'GONE' end
        if fenced then return 'FENCED' end
        if held > 0 and held + units > limit then return 'LIMIT ' .. table.concat(orders, ' ') end
    end
    if closed == 1 then return 'GONE' end
    if fenced then return 'FENCED' end
    if outside then return outside end
    if units < 1 or units > limit then return 'NO_ITEM' end
    local left = free_of(item)
    if not left then return 'NO_ITEM' end
    if left == 0 then return 0 end
    if left < units then return string.format('LEFT %.0f', left) end

    left = left - units
    free[item] = left
    changed_items[item] = true
    seq = seq + 1
    local hold = string.format('%s %s %.0f %.0f %s %.0f %s %s', id, item, units, seq, ARGV[2], now, retake, trace)
    if not holds_of[user] then changed_users[#changed_users + 1] = user end
    holds_of[user] = holds and (holds .. '\n' .. hold) or hold
    added[id] = true
    entries[#entries + 1] = seq
    entries[#entries + 1] = id .. user
    return string.format('HELD %.0f %.0f', seq, left)
end

local default_units = tonumber(ARGV[4])
local answers = {now, fenced and -1 or seq, 0}
for i = 1, count do
    local user, extras = users[i + 1], ARGV[4 + 3 * i]
    local item, units, retake, trace = ARGV[3], default_units, '-', '-'
    if extras ~= '' then
        item, units, retake, trace = string.match(extras, '^(%S+) (%S+) (%S+) (%S+)$')
        units = tonumber(units)
    end
    answers[i + 3] = decide(ids[i + 1], user, gone[i + 1], item, units, retake, trace, holds_of[user] or bought[i + 1])
end
answers[3] = seq

if #entries > 0 then
    local buys, stocks = {}, {}
    for _, user in ipairs(changed_users) do
        buys[#buys + 1] = user
        buys[#buys + 1] = holds_of[user]
    end
    for item in pairs(changed_items) do
        stocks[#stocks + 1] = item
        stocks[#stocks + 1] = string.format('%.0f', free[item])
    end
    redis.call('HSET', KEYS[4], unpack(buys))
    redis.call('ZADD', KEYS[5], unpack(entries))
    redis.call('HSET', KEYS[2], unpack(stocks))
    redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', seq), 'holds', string.format('%.0f', cfg[8] + #entries / 2))
end
return answers
