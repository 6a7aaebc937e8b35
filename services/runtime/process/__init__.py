"""The process round a service: settings, metrics, memory, shards, start and stop."""
