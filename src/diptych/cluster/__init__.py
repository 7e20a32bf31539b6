"""One archive on many machines: shards that are ordinary archives, searched together on Ray.

shard_manifest   which shards there are, and which patients go where
resharding       split, merge, move and verify, without a cluster
bulk_indexing    folders of patients into shards, here or by every core of a Ray cluster
shard_worker     one shard, opened: what can be asked of it
shard_calls      ask all shards, in this process          ray_shards   the same by actors on a Ray cluster
sharded_catalogue, sharded_search, sharded_archive        the shards as one archive, with the answers of one

Knows everything below retrieval; nothing about servers or commands. Ray is imported where it is needed, no earlier.
"""
