"""Collections: a folder of photographs, its features, pairs and matches, in shards any tool reads.

Each step plans its shards from what goes in, makes those that are not there, and writes each under
another name before it gets its own: a run that is killed leaves whole shards, and the next does
what is left. The names of shards are hashes of what they were made from.
"""
