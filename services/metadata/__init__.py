"""The metadata service: owns the namespace, applies commands in log order and judges each claim last."""
