"""Contracts: the messages between the services, the rows that they store, and the answers of their HTTP reads."""

from schemas.compiled import prefer_source_to_stale_module

prefer_source_to_stale_module()
