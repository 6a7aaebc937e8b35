"""The audit: finds for each block the versions and states that refer to it, without the judges' rule."""
