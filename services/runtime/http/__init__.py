"""The HTTP server of a process, and the common parts of its reads."""
