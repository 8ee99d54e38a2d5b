-- Ends orders: each id can never hold again, and its hold, if there is one, gives its units back.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  per order: order id, user
-- Answers {seq as found, seq, one of 'RELEASED' 'NOT_HELD' per order}, or {'NOT_NOW'} for all.

local cfg = redis.call('HMGET', KEYS[1], '', 'phase', 'seq', 'holds')
if not cfg[1] or cfg[2] ~= 'open' then return {'NOT_NOW'} end
local count = #ARGV / 2
local ids, users = {}, {''}
for i = 1, count do
    ids[i] = ARGV[2 * i - 1]
    users[i + 1] = ARGV[2 * i]
end
local bought = redis.call('HMGET', KEYS[4], unpack(users))
local whole = bought[1] and redis.call('SISMEMBER', KEYS[6], '') == 1 and redis.call('ZSCORE', KEYS[5], '')
    and redis.call('HEXISTS', KEYS[2], '') == 1 and redis.call('HEXISTS', KEYS[3], '') == 1
    and redis.call('HEXISTS', KEYS[7], '') == 1
if not whole then return {'NOT_NOW'} end

local seq, released = tonumber(cfg[3]), 0
local answers, entries, holds_of, back = {seq, 0}, {}, {}, {}
for i = 1, count do
    local id, user = ids[i], users[i + 1]
    local holds = holds_of[user]
    if holds == nil then holds = bought[i + 1] end
    local kept, item, units = {}, nil, nil
    for hold in string.gmatch(holds or '', '[^\n]+') do
        local other, its_item, its_units = string.match(hold, '^(%S+) (%S+) (%S+)')
        if other == id then
            item, units = its_item, tonumber(its_units)
        else
            kept[#kept + 1] = hold
        end
    end
    answers[i + 2] = item and 'RELEASED' or 'NOT_HELD'
    if item then
        seq, released = seq + 1, released + 1
        holds_of[user] = #kept > 0 and table.concat(kept, '\n')
        back[item] = (back[item] or 0) + units
    end
    entries[i] = id .. user
end
answers[2] = seq

redis.call('SADD', KEYS[6], unpack(ids))
redis.call('ZREM', KEYS[5], unpack(entries))
for user, holds in pairs(holds_of) do
    if holds then redis.call('HSET', KEYS[4], user, holds) else redis.call('HDEL', KEYS[4], user) end
end
for item, units in pairs(back) do redis.call('HINCRBY', KEYS[2], item, units) end
redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', seq), 'holds', string.format('%.0f', cfg[4] - released))
return answers
