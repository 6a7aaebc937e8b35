"""The process that runs a service: settings, metrics, memory, shards, start and stop."""
