"""Properties that hold for any input, most of them against a plain model."""
