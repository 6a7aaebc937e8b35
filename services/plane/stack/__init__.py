"""The plane as processes: what each is started with, who may touch the home, and its secrets."""
