"""Expands deleted directories page by page, and removes their own rows when no snapshot holds them."""
