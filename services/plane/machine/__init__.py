"""Resources of the machine: Java and the jars, child processes, ports, the home directory, and their errors."""
