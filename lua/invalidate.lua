-- Invalidates a tag, and tells the other processes. In this order, on one server: who
-- hears of it and asks again must not find the old stamp.
--
-- A missing stamp is never valid and the next one is random, so that to delete is to
-- replace. Deleting works when memory is full, and leaves nothing behind for tags that no entry has.
-- Fences of other writers stay, and the stamp that would hold after them is void.
--
-- KEYS[1]  the stamp
-- ARGV[1]  the channel
-- ARGV[2]  the message that says "invalidated"
-- ARGV[3]  the token of the writer's own fence, which is lifted, or nothing
--
-- Reply    1, or 0 when the message was refused

local p = peel(KEYS[1], ARGV[3])
local failed = true
if p and p.fenced and #p.fences > 0 then
  p.stamp, p.till = NONE, 0
  failed = keep(KEYS[1], p)
end
if failed then
  -- Also when memory is full: a fence less, of a writer who has yet to die, rather than an old stamp.
  redis.call('DEL', KEYS[1])
end
return publish(ARGV[1], ARGV[2])
