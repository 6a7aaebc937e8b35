"""Reading RocksDB in Spark: a data source, ``deepclean``, and the rows of checkpoints below it."""
