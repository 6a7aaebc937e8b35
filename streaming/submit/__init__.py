"""Programs for spark-submit: a directory of its own, since Spark lets a program import what stands beside it."""
