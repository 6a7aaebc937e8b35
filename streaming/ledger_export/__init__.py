"""The ledger as rows of a table, appended batch by batch."""
