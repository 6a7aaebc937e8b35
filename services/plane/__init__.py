"""The composition root: what the plane stands on, and the one place where its services meet in a process."""
