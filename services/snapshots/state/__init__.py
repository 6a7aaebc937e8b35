"""Tables of the service, their rows, and what it answers and asks."""
