"""The `deepclean` command: words in, tables out."""
