-- What one user holds.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  user
-- Answers nothing when the bucket is missing or loading, else {0 or 1 for "in the outbox", hold ...}.

local cfg = redis.call('HMGET', KEYS[1], '', 'phase', 'limit')
local bought = redis.call('HMGET', KEYS[4], '', ARGV[1])
if not cfg[1] or cfg[2] == 'loading' or not cfg[3] or not bought[1] then return false end
local found = {}
for hold in string.gmatch(bought[2] or '', '[^\n]+') do
    local id = string.match(hold, '^(%S+)')
    found[#found + 1] = redis.call('ZSCORE', KEYS[5], id .. ARGV[1]) and 1 or 0
    found[#found + 1] = hold
end
return found
