"""Sub-commands on garbage collection: what holds rows, what frees them, retention."""
