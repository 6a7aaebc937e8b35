"""The tables of the service, their rows, the answers to clients and the commands to metadata."""
