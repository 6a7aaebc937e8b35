"""Contracts: what travels between the services and what they store."""
