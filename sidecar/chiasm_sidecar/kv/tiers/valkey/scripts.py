"""What the server runs as one step: nobody sees, or comes between, a part of it.

Every record that is written is entered into an index, so that the server knows what lies there,
since when, and what may go:

    PREFIX:kv:NAMESPACE:KEY       one record, which ends by its time to live
    PREFIX:ages                   NAMESPACE:KEY by the time at which it ends
    PREFIX:ages:NAMESPACE         KEY by the same
    PREFIX:sizes:NAMESPACE        KEY -> bytes, with those that the server needs around it
    PREFIX:bytes                  NAMESPACE -> their sum; `all` -> the sum of sums

A record that ended by itself leaves its entry behind until the next writes take it out, and one
that the server evicted until it would have ended: the sums may be too high for a while, never too
low. The index has no time to live, or the server might evict it, and the bound with it.

Invariants, after every script: the sums are those of the entries; with a bound, `all` is within it
and each namespace within its share, however many write.
"""

from __future__ import annotations

# Shared by all; `prefix` and the rest are the script's own.
_INDEX = """
local prefix = ARGV[1]
local function add(name, size)
  for _, field in ipairs({'all', name}) do
    if redis.call('HINCRBY', prefix .. ':bytes', field, size) <= 0 then
      redis.call('HDEL', prefix .. ':bytes', field)
    end
  end
end
local function forget(name, key)
  local sizes = prefix .. ':sizes:' .. name
  redis.call('ZREM', prefix .. ':ages', name .. ':' .. key)
  redis.call('ZREM', prefix .. ':ages:' .. name, key)
  local size = redis.call('HGET', sizes, key)
  if size then
    redis.call('HDEL', sizes, key)
    add(name, -size)
  end
end
local function remove(name, key)
  redis.call('UNLINK', prefix .. ':kv:' .. name .. ':' .. key)
  forget(name, key)
end
local function held(field)
  return tonumber(redis.call('HGET', prefix .. ':bytes', field) or 0)
end
"""

# KEYS: the record, the manifest, the tombstones. ARGV: prefix, namespace, key, record, manifest,
# seconds to live, bytes in all (0: no bound), bytes of a namespace, bytes around a record, entries
# at most that go for one. Offsets, from 1, of what judge_rewrite compares: kind; tokens and size;
# repr_fp, key and scope.
PUT = (
    _INDEX
    + """
if redis.call('EXISTS', unpack(KEYS, 3)) > 0 then return 'retired' end
local name, key, record, ttl = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[6])
local limit, share, most = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[10])
local now = tonumber(redis.call('TIME')[1])
local function note()
  redis.call('ZADD', prefix .. ':ages', now + ttl, name .. ':' .. key)
  redis.call('ZADD', prefix .. ':ages:' .. name, now + ttl, key)
end
for _, each in ipairs(
  redis.call('ZRANGE', prefix .. ':ages', '-inf', now - 1, 'BYSCORE', 'LIMIT', 0, most)
) do
  local at = string.find(each, ':')
  forget(string.sub(each, 1, at - 1), string.sub(each, at + 1))
end
local length = redis.call('STRLEN', KEYS[1])
if length > 0 then
  local head = redis.call('GETRANGE', KEYS[1], 0, 127)
  local function same(first, last)
    return string.sub(head, first, last) == string.sub(record, first, last)
  end
  if length == string.len(record) and same(7, 7) and same(9, 16) and same(33, 112) then
    redis.call('EXPIRE', KEYS[1], ttl)
    if redis.call('HEXISTS', prefix .. ':sizes:' .. name, key) == 1 then note() end
    return 'stored'
  end
  remove(name, key)
  return 'conflict'
end
forget(name, key)
local size = string.len(record) + tonumber(ARGV[9])
if limit > 0 then
  if size > share or size > limit then return 'busy' end
  local num_gone = 0
  while held(name) + size > share or held('all') + size > limit do
    if num_gone == most then return 'busy' end
    num_gone = num_gone + 1
    if held(name) + size > share then
      remove(name, redis.call('ZRANGE', prefix .. ':ages:' .. name, 0, 0)[1])
    else
      local oldest = redis.call('ZRANGE', prefix .. ':ages', 0, 0)[1]
      local at = string.find(oldest, ':')
      remove(string.sub(oldest, 1, at - 1), string.sub(oldest, at + 1))
    end
  end
end
redis.call('SET', KEYS[1], record, 'EX', ttl)
redis.call('HSET', prefix .. ':sizes:' .. name, key, size)
add(name, size)
note()
if redis.call('EXPIRE', KEYS[2], ttl) == 0 then
  redis.call('SET', KEYS[2], ARGV[5], 'EX', ttl)
end
return 'kept'
"""
)

# ARGV: prefix, then NAMESPACE:KEY of what goes.
REMOVE = (
    _INDEX
    + """
for number = 2, #ARGV do
  local at = string.find(ARGV[number], ':')
  remove(string.sub(ARGV[number], 1, at - 1), string.sub(ARGV[number], at + 1))
end
return #ARGV - 1
"""
)
