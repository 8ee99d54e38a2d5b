-- Takes a missing or loading bucket for a loader and empties it. One whose `cfg` somebody wrote over
-- counts as missing.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  loader token, state, opens, closes, limit
-- Answers 'STARTED', 'OPEN' (nothing changed) or 'FENCED' (for good).

local phase = redis.call('TYPE', KEYS[1]).ok == 'hash' and redis.call('HGET', KEYS[1], 'phase')
if phase == 'open' then return 'OPEN' end
if phase == 'fenced' then return 'FENCED' end

redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', KEYS[1], '', '1', 'phase', 'loading', 'token', ARGV[1], 'state', ARGV[2], 'opens', ARGV[3],
    'closes', ARGV[4], 'limit', ARGV[5], 'seq', '0', 'pages', '0', 'holds', '0')
for _, key in ipairs({KEYS[2], KEYS[3], KEYS[4], KEYS[7]}) do redis.call('HSET', key, '', '1') end
redis.call('ZADD', KEYS[5], -1, '')
redis.call('SADD', KEYS[6], '')
return 'STARTED'
