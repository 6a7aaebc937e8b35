"""The third judge: claims, expansions, sweeps, and the commands with which operators control them."""
