"""Pure rules for the database of an Apache Ozone Manager: its rows, its chain of snapshots, and who holds a version."""
