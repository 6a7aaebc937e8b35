"""The real services under seeded faults, judged by a brute-force model with plain sets."""
