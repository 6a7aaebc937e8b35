"""The page of a plane: a small HTTP server whose answers are the client library's, and the page that shows them."""
