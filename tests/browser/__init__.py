"""The page of a plane and that of a report in a real browser."""
