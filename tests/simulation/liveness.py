"""A quiet time without a settle: nobody asks for anything, nothing fails, and all that can go must go by itself.

A settle ends every pause, so what waits for ever is found here alone. How long it may take follows from the settings.
"""

from __future__ import annotations

from services.domain.purge_hours import purge_hours
from tests.simulation.answers import check_answers, snapshot_names
from tests.simulation.checks import QuietCheck, check_accounts
from tests.simulation.errors import LivenessError, SimulationError
from tests.simulation.plane import Limits
from tests.simulation.run_state import RunState
from tests.simulation.scheduler import Scheduler

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
SAFETY_SWEEPS = 3
"""The first one may have begun before what it should find was there, and what the second one finds is swept once more
before its store is known to be clean."""
PACED_MS = 2_000
"""How far time passes while nobody has anything to do, but a rate may hold claims back: few rows may go each second."""
MOST_ROUNDS = 20_000
"""More than two days have minutes."""


def bound_ms(limits: Limits, rows: int, size_bytes: int) -> int:
    """Within what time everything reclaimable is freed, and everybody knows it, once nothing goes wrong any more."""
    keys, directories = limits.key_deletion, limits.directory_deletion
    bound = max(keys.undo_window_ms, directories.undo_window_ms)
    bound += 2 * max(keys.answer_timeout_ms, directories.answer_timeout_ms)  # a question that was lost, then its repeat
    bound += keys.longest_retry_ms + keys.longest_sweep_again_ms + directories.longest_blocked_ms
    bound += SAFETY_SWEEPS * (keys.safety_sweep_interval_ms + keys.undo_window_ms)
    for expiry_ms in (keys.open_key_expiry_ms, keys.upload_expiry_ms):
        if expiry_ms < DAY_MS:  # others do not expire meanwhile
            bound += expiry_ms + keys.write_expiry_interval_ms
    if keys.max_rows_per_second:
        bound += rows * SECOND_MS // keys.max_rows_per_second
    if keys.max_bytes_per_second:
        bound += size_bytes * SECOND_MS // keys.max_bytes_per_second
    if keys.purge_hours:  # what a first period finds may only be swept, and claimed in the next one
        bound += 2 * DAY_MS
    return bound


class Liveness:
    """Lets time pass."""

    def __init__(self, state: RunState, scheduler: Scheduler) -> None:
        self.state = state
        self._scheduler = scheduler

    def wait(self) -> None:
        """Ask, whenever nobody has anything to do, whether all has gone that can go: within the bound it has."""
        state = self.state
        pieces = [one for shard in state.shards for one in shard.model.pieces.by_number.values()]
        rows = len(pieces) + sum(len(shard.model.objects) for shard in state.shards)
        waits_ms = bound_ms(state.limits, rows, sum(piece.size_bytes for piece in pieces))
        waits_ms += state.set_back_ms  # undo windows end no earlier, and the log's time stands still
        end_ms = state.plane.clock.now_ms() + waits_ms
        for _ in range(MOST_ROUNDS):
            state.steps += 1
            messages = sum(self._scheduler.step(address) for address in state.plane.addresses)
            left = None if messages else self._left()
            if left is None and not messages:
                return
            if state.plane.clock.now_ms() >= end_ms:
                break
            state.plane.clock.advance(SECOND_MS if messages else self._idle_ms())
        what = f"after {waits_ms // SECOND_MS} s without a settle: {self._left() or 'it is never idle'}"
        state.oracles.say("liveness", LivenessError(what))

    def _idle_ms(self) -> int:
        """How far time passes while nobody has anything to do."""
        keys = self.state.limits.key_deletion
        has_rate = keys.max_rows_per_second or keys.max_bytes_per_second
        is_open = purge_hours(keys.purge_hours).are_open(self.state.plane.clock.now_ms())
        return PACED_MS if has_rate and is_open else MINUTE_MS

    def _left(self) -> SimulationError | None:
        """What is not as it should be when all has gone that can go."""
        try:
            for shard in self.state.shards:
                check_answers(self.state, shard)
                check_accounts(self.state.plane, shard.model)
                names = snapshot_names(self.state, shard)
                check = QuietCheck(self.state.plane, shard.model, names, self.state.oracles.asked)
                check.check_inventory()
                check.check_nothing_is_on_its_way()
                check.check_garbage()
                check.check_space()
                check.check_snapshots()
        except SimulationError as error:
            return error
        return None
