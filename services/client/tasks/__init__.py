"""Client operations that take several calls: bulk deletes, restores, diffs, lookups."""
