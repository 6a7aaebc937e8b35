"""Runs a service: reads its inputs, applies them, writes once, publishes; and all that surrounds that loop."""
