-- Puts a writer's fence around a tag, or prolongs it, and tells the other processes. While
-- it is there, no entry that names the tag is valid, and none that is loaded becomes so.
--
-- KEYS[1]  the stamp
-- ARGV[1]  the writer's token, 16 bytes, of its own for each transaction
-- ARGV[2]  the fence's life in milliseconds
-- ARGV[3]  the channel
-- ARGV[4]  the message that says "fenced"
--
-- Reply    1, or 0 when the message was refused; or the error of SET
--
-- The fence ends with its life even if nobody lifts it, and the stamp with it: missing.

local p = peel(KEYS[1], ARGV[1])
if not p then
  p = {stamp = NONE, till = 0}
elseif not p.fenced then
  local left = redis.call('PTTL', KEYS[1])
  p.now = clock()
  p.till = p.now + left
  if left <= 0 then
    p.stamp, p.till = NONE, 0
  end
end
p.now = p.now or clock()
p.fences, p.last = p.fences or {}, p.last or 0
local till = p.now + ARGV[2]
p.fences[#p.fences + 1] = ARGV[1] .. digits(till)
p.last = math.max(p.last, till)

local failed = keep(KEYS[1], p)
if failed then
  -- Without memory nobody can make a stamp either. What is there now dies.
  redis.call('DEL', KEYS[1])
  return failed
end
return publish(ARGV[3], ARGV[4])
