"""Differences between two states of a bucket."""
