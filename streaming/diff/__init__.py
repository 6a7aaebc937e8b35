"""Diffs of two snapshots that are too large for the service."""
