"""The plane as processes: their settings, start and supervision, the lock of the home, and its secrets."""
