"""The lens' source for Apache Paimon: a table's directory, read without Paimon."""
