"""The client of the plane: workloads, the model that judges them, and the `deepclean` command."""
