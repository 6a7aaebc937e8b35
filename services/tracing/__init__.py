"""Follows deletions through all processes, from the messages that these exchange ([decision 0062])."""
