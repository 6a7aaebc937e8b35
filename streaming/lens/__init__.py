"""The lens: Spark jobs that read what others wrote and write a report of who holds what."""
