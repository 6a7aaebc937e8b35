"""The log behind one port: Kafka, or memory for runs in one process; signatures are made and checked on the way."""
