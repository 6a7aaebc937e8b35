"""Verify the ledger against a replay of the command log; the replay shares no rule with the judges."""
