-- Every request with the next path and the next token.
-- Arguments: a file of paths, used in turn; a file of tokens; `once` or `again`: whether the
-- generator stops after the last token or begins with the first one again.
local heads, turn = {}, 0
local tokens, once, last

function init(args)
  for path in io.lines(args[1]) do
    heads[#heads + 1] = "POST " .. path .. " HTTP/1.1\r\nHost: " .. wrk.host .. "\r\nAuthorization: Bearer "
  end
  tokens, once = io.open(args[2]), args[3] == "once"
end

local function next_token()
  local token = tokens:read()
  if token then
    return token
  end
  if once then
    wrk.thread:stop()
    return last
  end
  tokens:seek("set")
  return tokens:read()
end

function request()
  turn = turn % #heads + 1
  last = next_token()
  return heads[turn] .. last .. "\r\n\r\n"
end
