"""What has to happen at once with whole buckets, as scripts that a Redis server runs as one step.

A full server refuses everything inside of MULTI, but not a script that only reads or removes. So snapshots can be
taken then, and what they sweep away makes room.
"""

from __future__ import annotations

READ = """
return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
"""
"""Two hashes, as of one moment."""

DROP = """
local gone = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    gone = gone + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return gone
"""
"""Remove the fields of a hash that still have the given values; how many those were."""
