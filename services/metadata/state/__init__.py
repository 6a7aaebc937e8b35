"""State that every unit of work of metadata reads and changes: tables, lists, figures, and the transaction."""
