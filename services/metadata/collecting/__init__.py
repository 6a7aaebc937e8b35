"""The third judge: claims, expansions, sweeps, and what operators may do to them."""
