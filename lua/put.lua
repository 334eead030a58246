-- Stores an entry, gives its lease back, and tells the waiters.
--
-- KEYS[1]  the entry
-- KEYS[2]  the lease
-- ARGV[1]  our token
-- ARGV[2]  our fence
-- ARGV[3]  the entry's life in milliseconds
-- ARGV[4]  the entry
-- ARGV[5]  the channel
-- ARGV[6]  the message that says "stored"
-- ARGV[7]  the message that says "released"
--
-- Reply    1 stored, 0 not: a newer entry or another's lease is there; or the error of SET
--
--   lease        entry                    outcome
--   ours         any                      stored
--   another's    any                      fenced
--   gone         none, foreign or older   stored: slow, but alone
--   gone         newer                    fenced
--   gone         ours                     stored: the client sent the request twice

local held = redis.pcall('GET', KEYS[2])
local ours = held == ARGV[1]
if type(held) == 'string' and not ours then
  return 0
end
if not ours then
  local head = redis.pcall('GETRANGE', KEYS[1], 0, 15)
  if type(head) == 'string' and #head == 16 and string.sub(head, 1, 4) == 'SQLH' then
    -- Numbers, not strings, are compared: the order of strings depends on the server's locale.
    local stored, fence = 0, tonumber(ARGV[2])
    for i = 9, 16 do
      stored = stored * 256 + string.byte(head, i)
    end
    if stored == fence then
      return 1
    end
    -- No clock has come this far: it is damage, which must not keep good entries out.
    if stored > fence and stored < 9007199254740991 then
      return 0
    end
  end
end

-- Out of memory, SET fails. The lease goes all the same, so that nobody waits for it.
local set = redis.pcall('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
if ours then
  redis.call('DEL', KEYS[2])
end
if type(set) == 'table' and set['err'] then
  if ours then
    redis.pcall('PUBLISH', ARGV[5], ARGV[7])
  end
  return set
end
redis.pcall('PUBLISH', ARGV[5], ARGV[6])
return 1
