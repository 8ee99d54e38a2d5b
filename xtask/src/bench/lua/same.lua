-- One request, the same each time: wrk builds it once and calls no Lua while it measures.
-- Argument: the access token.
function init(args)
  wrk.method = "POST"
  wrk.headers["Authorization"] = "Bearer " .. args[1]
end
