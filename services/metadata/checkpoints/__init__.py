"""Capturing and dropping snapshots, and rolling back to them."""
