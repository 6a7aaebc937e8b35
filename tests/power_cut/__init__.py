"""A disk that loses what was not synced: a process is killed, then its files are left as a power cut leaves them.

A kill alone cannot tell whether a write was synced, since the kernel still has what a dead process wrote.
"""
