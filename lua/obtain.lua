-- Asks for the right to load a key.
--
-- KEYS[1]  the entry
-- KEYS[2]  the lease
-- ARGV[1]  our token, fresh for this request
-- ARGV[2]  the lease's life in milliseconds
--
-- Reply    {1, 0, fence, present}  won: fence is this server's clock in microseconds, and
--                                  above that of the entry; present is 1 when there is one
--          {0, left, 0, 0}         somebody else has it for another left milliseconds

local held = redis.pcall('GET', KEYS[2])
-- Our own token is there when the client sent the request twice.
if type(held) == 'string' and held ~= ARGV[1] then
  local left = redis.call('PTTL', KEYS[2])
  -- What has no expiry is no lease, and would never end.
  if left >= 0 then
    return {0, math.max(left, 1), 0, 0}
  end
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])

local now = redis.call('TIME')
local fence = now[1] * 1000000 + now[2]
local present = 0
local head = redis.pcall('GETRANGE', KEYS[1], 0, 15)
if type(head) == 'string' and #head == 16 and string.sub(head, 1, 4) == 'SQLH' then
  present = 1
  -- Another server's clock may have written it, before a failover. Numbers, not strings, are
  -- compared: the order of strings depends on the server's locale.
  local stored = 0
  for i = 9, 16 do
    stored = stored * 256 + string.byte(head, i)
  end
  if stored >= fence and stored < 9007199254740991 then
    fence = stored + 1
  end
end
return {1, 0, fence, present}
