"""Hours of all that plays at random, with new seeds, and a table of what was played and found."""
