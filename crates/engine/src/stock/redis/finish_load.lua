-- Opens a loaded bucket if it is still what was read back.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  loader token, seq and pages as read back, when the keys may go ('' = never)
-- Answers 'OPEN', 'NOT_LOADER' or 'CHANGED'.

local cfg = redis.call('HMGET', KEYS[1], 'phase', 'token', 'seq', 'pages')
if cfg[2] ~= ARGV[1] then return 'NOT_LOADER' end
if cfg[1] == 'open' then return 'OPEN' end
if cfg[1] ~= 'loading' then return 'NOT_LOADER' end
if cfg[3] ~= ARGV[2] or cfg[4] ~= ARGV[3] then return 'CHANGED' end

redis.call('HSET', KEYS[1], 'phase', 'open')
if ARGV[4] ~= '' then
    -- In a day at the soonest: a time that is over would remove the keys at once.
    local soonest = (redis.call('TIME')[1] + 86400) * 1000
    local at = tonumber(ARGV[4]) < soonest and string.format('%.0f', soonest) or ARGV[4]
    for _, key in ipairs(KEYS) do redis.call('PEXPIREAT', key, at) end
end
return 'OPEN'
