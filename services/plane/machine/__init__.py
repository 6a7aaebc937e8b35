"""This machine: Java and its jars, child processes, ports, the home, and errors about them."""
