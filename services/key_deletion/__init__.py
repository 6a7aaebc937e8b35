"""Takes deleted rows from a verdict to freed blocks: judges again, claims, tells SCM, finishes; sweeps stores."""
