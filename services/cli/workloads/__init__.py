"""Sub-commands that replay a workload on a plane and check the outcome."""
