"""The `deepclean` command line."""
