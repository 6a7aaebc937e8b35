"""Read-only answers over HTTP."""
