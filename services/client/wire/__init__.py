"""The connection of the library to a plane: commands and answers over Kafka, reads over HTTP."""
