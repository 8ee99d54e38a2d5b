-- Forgets who left, ends turns that are over, and lets the next in.
--
-- KEYS  cfg wait seen in
-- ARGV  now in ms ('' = this server's clock), who was not seen for so long has left, how long a turn is, most inside,
--       most to let in, most per minute or '', most who are found to have left or whose turns end, for how long the
--       keys are kept
-- Answers how many wait, are inside, were let in ever, and by this call.

local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, user in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[7])) do
    redis.call('ZREM', KEYS[4], user)
end
local unseen = string.format('(%.0f', now - tonumber(ARGV[2]))
for _, user in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', unseen, 'LIMIT', 0, ARGV[7])) do
    redis.call('ZREM', KEYS[2], user)
    redis.call('ZREM', KEYS[3], user)
end

local cfg = redis.call('HMGET', KEYS[1], 'closed', 'used_up_to', 'admitted')
local waiting, inside = redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[4])
local most = math.min(math.max(tonumber(ARGV[4]) - inside, 0), tonumber(ARGV[5]), waiting)
if now < tonumber(cfg[1] or '0') then most = 0 end
local per_minute = tonumber(ARGV[6])
if per_minute == 0 then
    most = 0
elseif per_minute then
    -- In microseconds, as Openings::within_rate has it.
    local cost = math.max(math.floor(60000000 / per_minute), 1)
    local from = math.min(math.max(tonumber(cfg[2] or '0'), now * 1000 - math.max(cost, 1000000)), now * 1000)
    most = math.min(most, math.floor((now * 1000 - from) / cost))
    redis.call('HSET', KEYS[1], 'used_up_to', string.format('%.0f', from + cost * most))
end
if most > 0 then
    local ends = string.format('%.0f', now + tonumber(ARGV[3]))
    for _, user in ipairs(redis.call('ZRANGE', KEYS[2], 0, most - 1)) do
        redis.call('ZADD', KEYS[4], ends, user)
        redis.call('ZREM', KEYS[2], user)
        redis.call('ZREM', KEYS[3], user)
    end
    redis.call('HINCRBY', KEYS[1], 'admitted', most)
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[8]) end
return { waiting - most, inside + most, tonumber(cfg[3] or '0') + most, most }
