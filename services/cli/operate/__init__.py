"""Sub-commands that run, watch, back up, repair and audit a plane."""
