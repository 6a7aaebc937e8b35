"""Verifying the ledger: the command log is replayed by code that shares no rule with the judges, and compared."""
