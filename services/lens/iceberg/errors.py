"""What makes a table unreadable: one sentence each."""

from services.domain.errors import DeepcleanError


class IcebergError(DeepcleanError):
    """The table cannot be read; the message says what is missing and what to do."""
