"""What has to happen at once inside a Redis server, as scripts that it runs as one step.

Every script gets the keys lease, entries, manifests, staged and documents. Those for writers first see whether the
log may be changed and answer `fenced` or `lost` if not; then nothing was changed.

A full server refuses whatever may take memory, but never stops a script that has written already. So scripts begin
with a removal: what is small is let in even then, because cursors and manifests are what makes room. Only parts
have to wait.
"""

from __future__ import annotations

from tidelock.log.documents import CURSORS

_SHARED = """
local lease, entries, manifests, staged, documents = unpack(KEYS)

local function newest()
  return redis.call('ZRANGE', entries, -1, -1)[1] or ''
end

local function first_of(covers) return tonumber(string.match(covers, '^(%d+)')) or -1 end
local function last_of(covers) return tonumber(string.match(covers, '(%d+)$')) or -1 end

local function show(covers, manifest)
  redis.call('DEL', staged)
  redis.call('HSET', manifests, covers, manifest)
  redis.call('ZADD', entries, last_of(covers), covers)
end

local function show_staged()
  local covers, manifest = unpack(redis.call('HMGET', staged, 'covers', 'manifest'))
  if covers then show(covers, manifest) end
end
"""

_WRITER = (
    _SHARED
    + """
local token, mark, known = ARGV[1], ARGV[2], ARGV[3]

local function refusal()
  local held, whose, owner = unpack(redis.call('HMGET', lease, 'token', 'mark', 'owner'))
  if not held or tonumber(held) < tonumber(token) then return {'lost', newest()} end
  if held ~= token or (mark ~= '' and whose ~= mark) then return {'fenced', owner} end
  -- A replica that became the primary may have had the entry staged, and not yet shown.
  if redis.call('HGET', staged, 'covers') == known then show_staged() end
  if last_of(newest()) < last_of(known) then return {'lost', newest()} end
  return false
end
"""
)

TAKE_OVER = """
redis.call('HDEL', KEYS[1], 'mark')
redis.call('HSET', KEYS[1], 'mark', ARGV[1], 'owner', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'token', 1)
"""
"""Arguments: mark, owner. Answers with the new token."""

FINISH_STAGED = (
    _SHARED
    + """
if redis.call('HGET', lease, 'mark') == ARGV[1] then show_staged() end
return newest()
"""
)
"""Argument: the mark of a writer that has just taken over. Shows the entry that an earlier writer had staged, if
there is one; what a newer writer has staged is its own business. Answers with the newest entry."""

PUBLISH = (
    _WRITER
    + """
local covers, manifest, step = ARGV[4], ARGV[5], ARGV[6]
local no = refusal()
if no then return no end
local tail = newest()
if tail ~= '' and tail ~= covers and first_of(covers) ~= last_of(tail) + 1 then return {'lost', tail} end
for i = 7, #ARGV do
  if redis.call('EXISTS', ARGV[i]) == 0 then
    redis.call('DEL', staged)
    return {'gone', ARGV[i]}
  end
end
if step == 'stage' then
  redis.call('DEL', staged)
  redis.call('HSET', staged, 'covers', covers, 'manifest', manifest)
else
  show(covers, manifest)
end
return {'done', newest()}
"""
)
"""Arguments: token, mark, known, covers, manifest, step (`stage` or `show`), the keys of the entry's parts."""

UNPUBLISH = (
    _WRITER
    + f"local cursors = '^{CURSORS}'"
    + """
local no = refusal()
if no then return no end

-- A cursor that cannot be read counts as nothing finished.
local function finished(name)
  return tonumber(string.match(redis.call('HGET', documents, name), '"epoch":(-?%d+)')) or -1
end

local past = tonumber(ARGV[4])
for _, name in ipairs(past and redis.call('HKEYS', documents) or {}) do
  if string.find(name, cursors) and finished(name) < past then return {'needed', newest()} end
end
for i = 5, #ARGV do
  redis.call('ZREM', entries, ARGV[i])
  redis.call('HDEL', manifests, ARGV[i])
end
return {'done', newest()}
"""
)
"""Arguments: token, mark, known, the epoch that all cursors have to be past (or nothing), what to remove."""

UNSTAGE = (
    _WRITER
    + """
local no = refusal()
if no then return no end
redis.call('DEL', staged)
return {'done', newest()}
"""
)
"""Arguments: token, mark, known. Forgets the entry that this writer has staged."""

COLLECT = (
    _WRITER
    + """
local no = refusal()
if no then return no end
for i = 5, #ARGV do
  redis.call('UNLINK', ARGV[4] .. ':part:' .. ARGV[i])
  redis.call('ZREM', ARGV[4] .. ':parts', ARGV[i])
end
return {'done', newest()}
"""
)
"""Arguments: token, mark, known, the path of the log, and the parts to remove."""

PUT = """
redis.call('HDEL', KEYS[1], ARGV[1])
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
"""
"""Arguments: the name of a document and its value; the key is that of the documents."""
