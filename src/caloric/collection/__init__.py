"""Collections: the features, pairs and matches of a folder of images, stored in Parquet shards.

Each step plans its shards from its input and makes those that are missing. A shard is written under
a temporary name and then renamed, so a killed run leaves only complete shards and the next run
makes the rest. The name of a shard contains a hash of its input.
"""
