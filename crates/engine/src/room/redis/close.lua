-- Everybody goes.
--
-- KEYS  cfg wait seen in

return redis.call('UNLINK', unpack(KEYS))
