"""Owns the namespace: applies commands in the order of its log and is the last judge of every claim."""
