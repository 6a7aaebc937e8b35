"""Policies that take and drop snapshots by themselves."""
