"""Checks at the start, rebuilding a shard from its log, and proving that the result is the same."""
