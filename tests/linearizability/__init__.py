"""Concurrent clients, in the manner of Jepsen: what they saw has to be explained by one order of their calls.

Several clients put, delete, rename, list, take snapshots and bring back, all at once and under faults. Of each bucket
the history of calls and answers must be linearizable: each call takes effect at one moment between its beginning and
its answer, and what a snapshot lists is the bucket at one moment.
"""
