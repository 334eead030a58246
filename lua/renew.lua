-- Prolongs a lease that is still ours.
--
-- KEYS[1]  the lease
-- ARGV[1]  our token
-- ARGV[2]  its new life in milliseconds
--
-- Reply    1 prolonged, 0 gone or another's

if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
