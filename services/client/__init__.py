"""The client library of the plane."""
