"""Git as a source of the lens: every answer can be compared with what git itself lists."""
