"""Kafka brokers as child processes, with their access rights and topics."""
