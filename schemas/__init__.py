"""Contracts: what travels between the services and what they store."""

from schemas.compiled import prefer_sources_to_stale_modules

prefer_sources_to_stale_modules()
