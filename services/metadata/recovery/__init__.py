"""Starting on what is there, making a shard again from its log, and proving that it is the same."""
