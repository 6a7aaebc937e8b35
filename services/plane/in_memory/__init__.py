"""A plane in one process, for workloads without a broker and for the simulator."""
