"""Seeded crashes of the real plane: any process dies anywhere, and what can be seen in the end is the same."""
