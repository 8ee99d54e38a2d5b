-- Takes users in, or finds where they stand.
--
-- KEYS  cfg wait seen in
-- ARGV  now in ms ('' = this server's clock), when the sale opens, numbers of late comers per ms, rank of the first
--       of them, most who may wait, for how long nobody is let in by a room that forgot who waits, then per user:
--       user, rank or '', when the place that he shows was sealed or ''
-- Answers per user 'rank ahead', '-1 until' for who is inside, '-2 0' where the room is full.

local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local late, most = tonumber(ARGV[4]), tonumber(ARGV[5])
local least = math.min(math.max(now - tonumber(ARGV[2]), 0) * tonumber(ARGV[3]), late / 2)
local cfg = redis.call('HMGET', KEYS[1], 'late', 'began')
local waiting = redis.call('ZCARD', KEYS[2])
local last, began = tonumber(cfg[1] or '0'), tonumber(cfg[2] or now)
local refilled = began + tonumber(ARGV[6])
local forgot = false
local places = {}

for i = 7, #ARGV, 3 do
    local user, given = ARGV[i], tonumber(ARGV[i + 1])
    local until_ms = redis.call('ZSCORE', KEYS[4], user)
    if until_ms and tonumber(until_ms) > now then
        places[#places + 1] = '-1 ' .. string.format('%.0f', tonumber(until_ms))
    else
        local rank = tonumber(redis.call('ZSCORE', KEYS[2], user) or false)
        if not rank and waiting >= most then
            places[#places + 1] = '-2 0'
        else
            if not rank then
                forgot = forgot or now < refilled and (tonumber(ARGV[i + 2]) or began) < began
                if given then
                    rank = given
                    last = math.max(last, given - late)
                else
                    last = math.max(last + 1, least)
                    rank = late + last
                end
                waiting = waiting + 1
                redis.call('ZADD', KEYS[2], string.format('%.0f', rank), user)
            end
            redis.call('ZADD', KEYS[3], string.format('%.0f', now), user)
            places[#places + 1] = { user, rank }
        end
    end
end
redis.call('HSET', KEYS[1], 'late', string.format('%.0f', last), 'began', string.format('%.0f', began))
if forgot then redis.call('HSET', KEYS[1], 'closed', string.format('%.0f', refilled)) end
-- Only now, so that those of one call do not stand before each other by their place in it.
for i, place in ipairs(places) do
    if type(place) == 'table' then
        places[i] = string.format('%.0f %d', place[2], redis.call('ZRANK', KEYS[2], place[1]))
    end
end
return places
