"""What takes a client several calls: bulk deletes, restores, diffs, lookups."""
