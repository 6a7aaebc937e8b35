"""Finds the owners of shards that move: where the topic of owners says that they answer reads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from services.client.errors import UnreachableError
from services.domain.errors import DeepcleanError, TopicMissingError
from services.log.owner_topic import OwnerTopic

MOVE_SECONDS = 30.0
"""Time in which a shard gets another owner when a machine is lost: the brokers give up the former one after six
seconds, and the new one opens its database."""
LOOK_SECONDS = 0.2


class FollowedOwner:
    """An owner that the topic of owners names."""

    def __init__(self, owners: Callable[[], OwnerTopic], service: str, shard: int) -> None:
        self._owners = owners
        self._service = service
        self._shard = shard
        self._pause = threading.Event()

    def known_url(self) -> str:
        """Return the last address that was read; empty if there was none."""
        return self._owners().url(self._service, self._shard)

    def url(self) -> str:
        """Return the last address that was read; read the topic if there was none."""
        url = self.known_url() or self.newest_url()
        if not url:
            raise UnreachableError(
                f"no process has published the address of shard {self._shard} of {self._service}: see whether an "
                f"instance of {self._service} runs"
            )
        return url

    def look_again(self) -> None:
        """Wait a moment, then read the topic."""
        self._pause.wait(LOOK_SECONDS)
        self.newest_url()

    def newest_url(self) -> str:
        """Read the topic, and return the address that it names; empty if it names none.

        Raises:
            UnreachableError: the broker does not answer.
        """
        owners = self._owners()
        try:
            owners.read()
        except TopicMissingError as error:
            raise UnreachableError(f"{error}: deepclean topics ensure") from error
        except DeepcleanError as error:
            raise UnreachableError(
                f"the owners of shards cannot be read ({error}): see that the broker runs"
            ) from error
        return owners.url(self._service, self._shard)
