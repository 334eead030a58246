-- What stands under the name of a stamp; the scripts about stamps begin with this.
--
--   16 bytes                            the stamp: 12 that an invalidation replaces, and
--                                       a counter of 4 that a soft one moves on
--   "SQLF1" stamp till { token till }   fences of writers who are about to commit, each with
--                                       the end of its life; in front, the stamp that holds again
--                                       when all are lifted, and its end. Token and stamp take 16
--                                       bytes, an end is this server's clock in 13 digits of milliseconds.
--
-- What is neither counts as missing. Readers take anything but 16 bytes for missing.
-- A fence that ran out tells of a writer that may have died after its commit: the stamp in front is void then.

local FENCED = 'SQLF1'
local NONE = string.rep('\0', 16)

local function clock()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function digits(n)
  return string.format('%013.0f', n)
end

-- peel returns what is under key as a table, nil when nothing is:
--   stamp   the stamp, or NONE
--   fenced  whether there are fences; then also
--   till    the end of the stamp, 0 for NONE
--   fences  those that live, without token's, each with its end
--   last    the last of their ends
--   ours    whether token's was there
--   now     the clock
local function peel(key, token)
  local v = redis.pcall('GET', key)
  if type(v) ~= 'string' then
    return nil
  end
  if #v == 16 then
    return {stamp = v, fenced = false}
  end
  if string.sub(v, 1, 5) ~= FENCED or (#v - 34) % 29 ~= 0 then
    return nil
  end
  local p = {
    stamp = string.sub(v, 6, 21), fenced = true, till = tonumber(string.sub(v, 22, 34)) or 0,
    fences = {}, last = 0, ours = false, now = clock(),
  }
  for i = 35, #v, 29 do
    local till = tonumber(string.sub(v, i + 16, i + 28)) or 0
    if string.sub(v, i, i + 15) == token then
      p.ours = true
    elseif till > p.now then
      p.fences[#p.fences + 1] = string.sub(v, i, i + 28)
      p.last = math.max(p.last, till)
    else
      p.stamp, p.till = NONE, 0
    end
  end
  return p
end

-- keep writes p, which has fences, and returns an error or what is none.
local function keep(key, p)
  local set = redis.pcall('SET', key, FENCED .. p.stamp .. digits(p.till) .. table.concat(p.fences),
    'PX', string.format('%.0f', p.last - p.now))
  if type(set) == 'table' and set['err'] then
    return set
  end
  return nil
end

local function publish(channel, message)
  local sent = redis.pcall('PUBLISH', channel, message)
  if type(sent) == 'table' then
    return 0
  end
  return 1
end

