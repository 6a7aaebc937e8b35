"""The audit: what each block is reached from, worked out without the judges' rule."""
