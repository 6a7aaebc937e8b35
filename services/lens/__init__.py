"""The lens on data that others wrote: a report says which references hold what, and questions are answered from it."""
