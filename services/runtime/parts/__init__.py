"""Parts that several services are built of: followers of the chain and the collector, timers, signatures."""
