-- Reads the stamp of a tag, creates it when it is missing, and makes it live long enough.
--
-- KEYS[1]  the stamp
-- ARGV[1]  16 random bytes, to be the stamp when there is none
-- ARGV[2]  how long it has to live at least, in milliseconds
--
-- Reply    the stamp; nothing, "", when the tag is fenced: what is loaded now cannot be shared

local p = peel(KEYS[1], '')
if p and not p.fenced then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return p.stamp
end
if p and #p.fences > 0 then
  return ''
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
