-- Takes away a fence whose writer has written nothing after all.
--
-- KEYS[1]  the stamp
-- ARGV[1]  the writer's token
--
-- Reply    1 lifted, 0 it was not there
--
--   others' fences   the stamp in front         outcome
--   some             any                        they stay, and the stamp in front
--   none             lives                      the stamp holds again: nobody has written
--   none             void, or past its end      missing

local p = peel(KEYS[1], ARGV[1])
if not p or not p.fenced or not p.ours then
  return 0
end
if #p.fences > 0 then
  keep(KEYS[1], p) -- else ours ends by itself
elseif p.stamp ~= NONE and p.till > p.now then
  local set = redis.pcall('SET', KEYS[1], p.stamp, 'PX', string.format('%.0f', p.till - p.now))
  if type(set) == 'table' and set['err'] then
    redis.call('DEL', KEYS[1])
  end
else
  redis.call('DEL', KEYS[1])
end
return 1
