"""Empties deleted directories page by page, and purges their own rows once nobody holds them."""
