"""Taking, dropping and rolling back to snapshots."""
