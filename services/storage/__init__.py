"""Keeps a service's state: sorted tables of records over RocksDB, or over memory in the simulator."""
