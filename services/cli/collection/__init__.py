"""Sub-commands on garbage collection: collection state, breaker, retention, tags, consumers, space."""
