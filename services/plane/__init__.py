"""The composition root: brokers, processes and upkeep of a plane, and the plane that runs in one process."""
