"""Creating, naming, protecting and deleting snapshots, and rolling back to them."""
