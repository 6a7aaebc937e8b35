"""The lens on Iceberg tables: manifests are read by Spark, each one once."""
