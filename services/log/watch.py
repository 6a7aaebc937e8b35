"""A thread that looks at something again and again, until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from services.domain.errors import DeepcleanError, RetryableError

STOP_SECONDS = 1.0

_logger = logging.getLogger(__name__)


class Trouble:
    """Logs why a look fails that will be repeated: what passes by itself for developers only, anything else once."""

    def __init__(self, what: str) -> None:
        """``what`` says what is not known meanwhile."""
        self._what = what
        self._last = ""

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Log an error of the block, and go on behind it."""
        try:
            yield
        except RetryableError as error:
            _logger.debug("%s, asked again: %s", self._what, error)
        except (DeepcleanError, OSError) as error:  # such as a topic that an older program has not made
            if str(error) != self._last:
                _logger.warning("%s: %s", self._what, error)
            self._last = str(error)


class Watch:
    """Calls ``look`` every ``seconds``, at first at once. An error that it raises is logged, and it is called again."""

    def __init__(self, name: str, seconds: float, look: Callable[[], None]) -> None:
        self._look = look
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the look in progress; give up the wait soon, since the broker may not answer."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except Exception:  # Kafka's client raises errors of its own; nobody would miss a thread that ended
                _logger.exception("%s looks again", self._thread.name)
            self._stop.wait(self._seconds)
