"""Commands of users: volumes, buckets, keys, directories."""
