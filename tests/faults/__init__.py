"""Defects put back by hand, and the directed test that catches each: ``make faults``."""
