"""The last applied command of each client and its answer, kept for an hour, so that a repeat changes nothing."""

from __future__ import annotations

from schemas.records import ClientRow
from services.domain.durations import HOUR_MS
from services.metadata.state.tables import CLIENT_TABLE
from services.runtime.loop.service import Work


class ClientNumbers:
    """The clients of the shard. Changes of a batch are written once, at its end."""

    def __init__(self) -> None:
        self._changed: dict[bytes, tuple[int, int, bytes]] = {}

    def clear(self) -> None:
        """Discard the changes of an aborted batch."""
        self._changed.clear()

    def last(self, work: Work, client: bytes) -> tuple[int, bytes]:
        """Return number and encoded answer of a client's last command; number 0 for an unknown client."""
        changed = self._changed.get(client)
        if changed is not None:
            return changed[0], changed[2]
        row = work.table(CLIENT_TABLE).get(client)
        return (0, b"") if row is None else (row.number, row.reply)

    def applied(self, client: bytes, number: int, log_time_ms: int, reply: bytes) -> None:
        """Note an applied command. ``reply`` is its encoded answer, empty if the client wanted none."""
        self._changed[client] = (number, log_time_ms, reply)

    def forget(self, work: Work, log_time_ms: int) -> None:
        """Remove clients that sent no new command for an hour of log time; a repeat does not count."""
        oldest_ms = log_time_ms - HOUR_MS
        # Include the changes of this batch: the remembered clients must not depend on where batches end.
        for client in [one for one, (_, heard_ms, _) in self._changed.items() if heard_ms < oldest_ms]:
            del self._changed[client]
        table = work.table(CLIENT_TABLE)
        for client, row in list(table.scan()):
            if row.log_time_ms < oldest_ms and client not in self._changed:
                table.delete(client)

    def write(self, work: Work) -> None:
        """Write the changes of the batch."""
        table = work.table(CLIENT_TABLE)
        for client, changed in self._changed.items():
            table.put(client, ClientRow(*changed))
        self._changed.clear()
