"""Retention: policies that create and delete snapshots automatically."""
