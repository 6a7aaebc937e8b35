"""Parts that several services share: followers of the chain and of the collection state, timers, signatures."""
