"""The id that a new broker's storage is given."""

from __future__ import annotations

import uuid

import pytest

from services.plane.broker.embedded import new_cluster_id


def test_no_cluster_id_looks_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter([uuid.UUID(bytes=b"\xf8" + bytes(15)), uuid.UUID(bytes=b"\x10" + bytes(15))])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(ids))
    assert new_cluster_id() == "EAAAAAAAAAAAAAAAAAAAAA"
