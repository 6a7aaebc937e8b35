"""Contracts: the messages between the services, the rows that they store, and the answers of their HTTP reads."""

from schemas.compiled import prefer_sources_to_stale_modules

prefer_sources_to_stale_modules()
