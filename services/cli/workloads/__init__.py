"""Sub-commands that play a workload on a plane and judge the outcome."""
