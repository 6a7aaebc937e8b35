"""Kafka brokers as child processes, their rights and topics."""
