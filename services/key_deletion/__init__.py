"""Frees the blocks of reclaimable rows: judges again, claims, has SCM delete, finishes; and sweeps garbage ranges."""
