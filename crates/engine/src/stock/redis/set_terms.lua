-- Gives an open bucket other terms.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  state, opens, closes, limit, when the keys may go ('' = never)
-- Answers 1, or 0 when the bucket is missing, loading or fenced.

if redis.call('HGET', KEYS[1], 'phase') ~= 'open' then return 0 end

redis.call('HSET', KEYS[1], 'state', ARGV[1], 'opens', ARGV[2], 'closes', ARGV[3], 'limit', ARGV[4])
if ARGV[5] ~= '' then
    for _, key in ipairs(KEYS) do redis.call('PEXPIREAT', key, ARGV[5]) end
end
return 1
