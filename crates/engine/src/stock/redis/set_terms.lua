-- Gives an open bucket other terms.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  state, opens, closes, limit, when the keys may go ('' = never)
-- Answers 1, or 0 when the bucket is missing, loading or fenced.

if redis.call('HGET', KEYS[1], 'phase') ~= 'open' then return 0 end

redis.call('HSET', KEYS[1], 'state', ARGV[1], 'opens', ARGV[2], 'closes', ARGV[3], 'limit', ARGV[4])
if ARGV[5] ~= '' then
    -- In a day at the soonest: a time that is over would remove the keys at once.
    local soonest = (redis.call('TIME')[1] + 86400) * 1000
    local at = tonumber(ARGV[5]) < soonest and string.format('%.0f', soonest) or ARGV[5]
    for _, key in ipairs(KEYS) do redis.call('PEXPIREAT', key, at) end
end
return 1
