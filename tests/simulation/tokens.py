"""Delegation tokens as the model of a run knows them: who acts by one, and until when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from schemas import records
from services.workloads.judge.model_bucket import OperationRefusedError

DAY_MS = 86_400_000
LIFE_MS = 7 * DAY_MS
SIGNS_AS = "token "


@dataclass(slots=True)
class Token:
    """One token."""

    owner: str
    renewer: str
    expiry_ms: int
    last_ms: int
    """When it ends, however often it is renewed."""


@dataclass(slots=True)
class Tokens:
    """The tokens of a shard, by their ids."""

    present: dict[str, Token] = field(default_factory=dict)

    def owner_of(self, user: str, log_time_ms: int) -> str:
        """As whom somebody acts who signs by a token; empty when he acts as nobody."""
        token = self.present.get(user.removeprefix(SIGNS_AS))
        return token.owner if token is not None and token.expiry_ms > log_time_ms else ""

    def forget_expired(self, log_time_ms: int) -> None:
        """An hour has passed: what has expired is gone."""
        self.present = {name: one for name, one in self.present.items() if one.expiry_ms > log_time_ms}

    def change(self, body: Any, user: str, token_id: str, log_time_ms: int, *, people: set[str]) -> None:
        """Make a token of an id, or renew or cancel one; ``user`` is who has signed, ``people`` who has a secret."""
        if isinstance(body, records.GetDelegationToken):
            if user not in people:
                raise OperationRefusedError("INVALID_AUTH_METHOD", user)
            if body.renewer not in people:
                raise OperationRefusedError("INVALID_REQUEST", body.renewer)
            ends = (log_time_ms + DAY_MS, log_time_ms + LIFE_MS)
            self.present[token_id] = Token(user, body.renewer, *ends)
            return
        token = self.present.get(body.token_id)
        if token is None:
            raise OperationRefusedError("INVALID_TOKEN", body.token_id)
        if isinstance(body, records.CancelDelegationToken):
            if user not in (token.owner, token.renewer, "root"):
                raise OperationRefusedError("PERMISSION_DENIED", body.token_id)
            del self.present[body.token_id]
            return
        if user != token.renewer:
            raise OperationRefusedError("PERMISSION_DENIED", body.token_id)
        if token.expiry_ms <= log_time_ms:
            raise OperationRefusedError("TOKEN_EXPIRED", body.token_id)
        token.expiry_ms = min(log_time_ms + DAY_MS, token.last_ms)
