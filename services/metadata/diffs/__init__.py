"""Diffs: the differences between two states of a bucket."""
