-- Stops a bucket for good, making the mark where it is missing or of a wrong type.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  'retire' to drop the contents of a bucket whose epoch is over, else nothing
-- Answers 1 if there was more than the mark.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('UNLINK', KEYS[1]) end
local had = redis.call('HEXISTS', KEYS[1], 'limit')
if ARGV[1] == 'retire' then redis.call('UNLINK', unpack(KEYS)) end
redis.call('HSET', KEYS[1], '', '1', 'phase', 'fenced')
return had
