-- A user waits no more. A turn that he was given ends by its time, since its token does.
--
-- KEYS  cfg wait seen in
-- ARGV  user

redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return 1
