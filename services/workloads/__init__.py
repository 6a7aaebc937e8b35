"""Workloads: their sources and formats, and the code that replays them on a plane."""
