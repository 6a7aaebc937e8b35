"""Measurements of the plane on this machine, each compared with a ceiling that the same run has measured."""
