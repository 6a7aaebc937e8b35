"""Sources of work, and what plays them on a plane."""
