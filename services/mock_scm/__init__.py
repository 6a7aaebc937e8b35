"""Stands in for Ozone's storage container manager: knows which blocks exist, and deletes them when it is told to."""
