"""How the library reaches a plane: commands and answers over Kafka, reads over HTTP."""
