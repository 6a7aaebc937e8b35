"""Tests, by what they need: nothing (unit, property), several services, a broker, Spark."""
