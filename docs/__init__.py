"""The documents, and the program that writes their generated parts."""
