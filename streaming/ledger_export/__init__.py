"""Exports the ledger as rows of a table, batch by batch."""
