-- Behind each of the others: what was counted, in one line.
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("counted %d %d %d %d\n", summary.duration, summary.requests, e.status,
    e.connect + e.read + e.write + e.timeout))
end
