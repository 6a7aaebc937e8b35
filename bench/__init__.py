"""Measurements of the plane on this machine, each beside a ceiling that the same run has measured."""
