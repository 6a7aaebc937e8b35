"""The log behind one interface: Kafka, or memory for runs in one process; and the signing of commands."""
