"""Snapshots: names and states, the two chains, clean flags, sizes, and the request to settle.

Owns snapshotInfoTable. What a snapshot holds is metadata's; the two meet in the topics.
"""
