"""Tests of one unit each, at its edges."""
