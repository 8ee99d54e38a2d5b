-- Moves an item's free and allocated units, once per operation id. What was answered once is the
-- answer for good: somebody may have acted on it, and a repeated call must not decide anew.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  operation id, item, units (may be negative)
-- Answers {'APPLIED'}, {'NOT_NOW'} or {'LEFT', units free}.

local cfg = redis.call('HMGET', KEYS[1], '', 'phase', 'seq')
if not cfg[1] or cfg[2] ~= 'open' then return {'NOT_NOW'} end
local whole = redis.call('HEXISTS', KEYS[2], '') == 1 and redis.call('HEXISTS', KEYS[3], '') == 1
    and redis.call('HEXISTS', KEYS[4], '') == 1 and redis.call('ZSCORE', KEYS[5], '')
    and redis.call('SISMEMBER', KEYS[6], '') == 1
if not whole then return {'NOT_NOW'} end
local operations = redis.call('HMGET', KEYS[7], '', ARGV[1])
local free, allocated = redis.call('HGET', KEYS[2], ARGV[2]), redis.call('HGET', KEYS[3], ARGV[2])
local refused = string.match(operations[2] or '', '^LEFT (%d+)$')
if refused then return {'LEFT', refused} end
if operations[2] then return {'APPLIED'} end
if not (operations[1] and free and allocated) or ARGV[2] == '' then return {'NOT_NOW'} end
local units = tonumber(ARGV[3])
if free + units < 0 or allocated + units < 0 then
    redis.call('HSET', KEYS[7], ARGV[1], 'LEFT ' .. free)
    return {'LEFT', free}
end

redis.call('HINCRBY', KEYS[2], ARGV[2], ARGV[3])
redis.call('HINCRBY', KEYS[3], ARGV[2], ARGV[3])
redis.call('HSET', KEYS[7], ARGV[1], ARGV[3])
redis.call('HINCRBY', KEYS[1], 'seq', 1)
return {'APPLIED'}
