"""The job that verifies the ledger of a large shard."""
