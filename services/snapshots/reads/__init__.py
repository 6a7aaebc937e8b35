"""Answers over HTTP; nothing here changes anything."""
