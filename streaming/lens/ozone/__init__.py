"""The lens' source for the database of an Apache Ozone Manager and its snapshots."""
