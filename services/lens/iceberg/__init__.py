"""Iceberg tables for the lens: what their metadata says, without Spark."""
