"""A datanode: keeps copies of containers, with the bytes of their blocks, on its disks."""
