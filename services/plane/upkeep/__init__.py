"""What an operator has done to a plane: audits, backups, rebuilds, trims, lost tails, status."""
