"""Snapshots: names and states, the two chains, deep-clean flags, sizes, and settling.

The service owns snapshotInfoTable. Metadata owns the contents of snapshots. The two exchange messages only.
"""
