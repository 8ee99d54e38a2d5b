-- Outbox entries, oldest first. Answers for fenced buckets too.
--
-- KEYS  cfg stk alc buy out gone ops
-- ARGV  reserved before (ms), at most how many
-- Answers {user, hold ...}.

local entries = redis.call('ZRANGE', KEYS[5], 0, tonumber(ARGV[2]))
local before, found = tonumber(ARGV[1]), {}
for _, entry in ipairs(entries) do
    local id, user = string.sub(entry, 1, 32), string.sub(entry, 33)
    if user ~= '' then
        for hold in string.gmatch(redis.call('HGET', KEYS[4], user) or '', '[^\n]+') do
            local other, at = string.match(hold, '^(%S+) %S+ %S+ %S+ %S+ (%S+)')
            if other == id and tonumber(at) < before then
                found[#found + 1] = user
                found[#found + 1] = hold
            end
        end
    end
end
return found
