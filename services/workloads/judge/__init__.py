"""What the outcome of a workload must be, worked out without the product's rules."""
