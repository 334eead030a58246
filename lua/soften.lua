-- Invalidates a tag softly, and tells the other processes: what was loaded under the present stamp is
-- stale and no longer fresh. An invalidation before or after this one wins.
--
-- KEYS[1]  the stamp
-- ARGV[1]  the channel
-- ARGV[2]  the message that says "softened"
--
-- Reply    1, or 0 when the message was refused; or the error of SET
--
-- The counter in the stamp's last bytes needs no randomness: it goes with the first twelve, which are random.

local function next(stamp)
  local n = 0
  for i = 13, 16 do
    n = n * 256 + string.byte(stamp, i)
  end
  n = (n + 1) % 4294967296
  local out = ''
  for _ = 1, 4 do
    out = string.char(n % 256) .. out
    n = math.floor(n / 256)
  end
  return out
end

local p = peel(KEYS[1], '')
if p and p.stamp ~= NONE then
  if not p.fenced then
    local set = redis.pcall('SETRANGE', KEYS[1], 12, next(p.stamp)) -- its life stays
    if type(set) == 'table' and set['err'] then
      -- Memory is full: dead rather than fresh.
      redis.call('DEL', KEYS[1])
    end
  elseif #p.fences > 0 then
    p.stamp = string.sub(p.stamp, 1, 12) .. next(p.stamp)
    local failed = keep(KEYS[1], p)
    if failed then
      return failed
    end
  end
end
return publish(ARGV[1], ARGV[2])
