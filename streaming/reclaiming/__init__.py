"""The streaming job: judges deleted entries by the snapshot chain and publishes purge requests."""
