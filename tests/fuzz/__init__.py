"""Coverage-guided fuzzing: targets that take any bytes, what they must hold, and inputs that reach much of the code."""
