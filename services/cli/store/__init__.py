"""Sub-commands on volumes, buckets, keys, directories and snapshots."""
