"""The services of the plane, the rules that they share, and their client."""
