-- One request, the same each time: wrk builds it once and calls no Lua while it measures.
-- Argument: the access token.
function init(args)
  wrk.method = "POST"
  wrk.headers["Authorization"] = "Bearer " .. args[1]
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("counted %d %d %d %d\n", summary.duration, summary.requests, e.status,
    e.connect + e.read + e.write + e.timeout))
end
