-- Invalidates a tag, and tells the other processes. In this order, on one server: who
-- hears of it and asks again must not find the old stamp.
--
-- A missing stamp is never valid and the next one is random, so that to delete is to
-- replace. Deleting works when memory is full, and leaves nothing behind for tags that no entry has.
--
-- KEYS[1]  the stamp
-- ARGV[1]  the channel
-- ARGV[2]  the message that says "invalidated"
--
-- Reply    1, or 0 when the message was refused

redis.call('DEL', KEYS[1])
local sent = redis.pcall('PUBLISH', ARGV[1], ARGV[2])
if type(sent) == 'table' then
  return 0
end
return 1
