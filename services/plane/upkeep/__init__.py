"""Operations on a plane: audits, backups, rebuilds, trims, lost tails, upgrades, status."""
