-- Every request with the next token of a file, from the start again at its end; each connection waits 10 ms between
-- two requests. Arguments: the path; a file of tokens.
local head, tokens

function init(args)
  head = "POST " .. args[1] .. " HTTP/1.1\r\nHost: " .. wrk.host .. "\r\nAuthorization: Bearer "
  tokens = io.open(args[2])
end

function delay()
  return 10
end

function request()
  local token = tokens:read()
  if not token then
    tokens:seek("set")
    token = tokens:read()
  end
  return head .. token .. "\r\n\r\n"
end
