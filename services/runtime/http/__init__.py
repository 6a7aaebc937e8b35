"""The HTTP server of a process, and what its reads have in common."""
