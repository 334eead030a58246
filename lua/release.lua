-- Gives back a lease that is still ours, and tells the waiters.
--
-- KEYS[1]  the lease
-- ARGV[1]  our token
-- ARGV[2]  the channel
-- ARGV[3]  the message that says "released"
--
-- Reply    1 released, 0 gone or another's

if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[2], ARGV[3])
  return 1
end
return 0
