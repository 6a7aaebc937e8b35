"""Writes what the plane knows as Iceberg tables that any engine reads."""
