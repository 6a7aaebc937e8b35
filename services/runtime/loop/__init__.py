"""The loop of a service: take messages, apply, write once, publish; and what it keeps for that."""
