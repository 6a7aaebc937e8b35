"""Taking, naming, holding, dropping and rolling back to snapshots."""
