"""Copies of a running service's database, made on request."""
