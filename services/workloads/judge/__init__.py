"""The expected outcome of a workload, computed without the product's rules."""
