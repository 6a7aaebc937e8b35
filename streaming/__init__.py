"""The Spark jobs: judges deleted entries as a set. Imports schemas and services.domain only."""
