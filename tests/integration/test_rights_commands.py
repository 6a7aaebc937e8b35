"""The commands about rights, tenants, tokens, quotas and links on a secured plane: what they do and what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.access import ADMINISTRATOR
from services.cli.main import app
from services.plane.stack.stack import Stack

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.long]


class Line:
    """The command line on one home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def run(self, *words: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, ["--home", str(self._home), *words])
        assert result.exit_code == status, result.output
        return result.output

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def secret_of(self, said: str) -> Path:
        """Return the file with a secret that a command has named, which only its owner may read."""
        file = Path(said.partition(" signs with ")[2].partition(": keep")[0].partition(", as ")[0])
        assert file.stat().st_mode & 0o077 == 0
        return file


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with Stack(tmp_path_factory.mktemp("rights"), is_secured=True) as stack:
        line = Line(stack.home)
        line.run("volume", "create", "sales")
        for bucket in ("reports", "archive"):
            line.run("bucket", "create", f"sales/{bucket}")
        line.run("secret", "set", "eve")
        yield line


def test_tenants_and_their_access_ids(line: Line) -> None:
    assert line.run("tenant", "create", "acme", "--volume", "acme-data") == "tenant acme has the volume acme-data\n"
    file = line.secret_of(line.run("tenant", "assign", "acme", "eve"))
    first = file.read_text()
    line.run("tenant", "admin", "acme$eve", "--delegated")
    (user,) = line.json("tenant", "users", "acme")
    assert (user["access_id"], user["user"], user["is_delegated_admin"]) == ("acme$eve", "eve", True)
    assert line.run("tenant", "admin", "acme$eve", "--end") == "acme$eve is no administrator of its tenant\n"
    assert line.secret_of(line.run("tenant", "secret", "acme$eve")).read_text() != first
    assert line.run("tenant", "secret", "acme$eve", "--revoke") == "acme$eve has no secret\n"
    assert not file.exists()
    assert "TENANT_NOT_EMPTY" in line.run("tenant", "delete", "acme", status=1)
    line.run("tenant", "revoke", "acme$eve")
    line.run("tenant", "delete", "acme")
    assert line.json("tenant", "list") == []
    assert "TENANT_NOT_FOUND" in line.run("tenant", "users", "acme", status=1)
    assert "ACCESS_ID_NOT_FOUND" in line.run("tenant", "revoke", "acme$eve", status=1)


def test_delegation_tokens(line: Line) -> None:
    said = line.run("token", "get", ADMINISTRATOR)
    token = said.split()[1]
    secret = line.secret_of(said).read_text()
    listed = line.run("token", "list", "--json")
    assert [one["token_id"] for one in json.loads(listed)] == [token]
    assert secret not in listed
    assert line.run("token", "renew", token) == f"token {token} is renewed\n"
    assert line.run("token", "cancel", token) == f"token {token} is cancelled\n"
    assert "INVALID_TOKEN" in line.run("token", "renew", token, status=1)
    assert "is no id of a token" in line.run("token", "renew", "mine", status=2)


def test_access_lists(line: Line) -> None:
    line.run("key", "put", "sales/reports/january", "--size", "10")
    for place in ("sales", "sales/reports", "sales/reports/logs/", "sales/reports/january"):
        line.run("acl", "add", place, "user:eve:rl")
        (entry,) = line.json("acl", "list", place)
        assert (entry["identity"], entry["name"], entry["rights"]) == ("USER", "eve", ["READ", "LIST"])
        line.run("acl", "remove", place, "user:eve:l")
        assert line.json("acl", "list", place)[0]["rights"] == ["READ"]
        line.run("acl", "set", place, "group:staff:a[DEFAULT]", "world::r")
        assert [one["scope"] for one in line.json("acl", "list", place)] == ["DEFAULT", "ACCESS"]
        line.run("acl", "set", place)
        assert line.json("acl", "list", place) == []
    assert line.run("secret", "groups", "eve", "staff", "board") == "eve has 2 groups\n"
    assert "is no entry such as" in line.run("acl", "add", "sales", "eve:rw", status=2)


def test_owners(line: Line) -> None:
    assert line.run("volume", "owner", "sales", "eve") == "sales belongs to eve\n"
    assert line.run("bucket", "owner", "sales/archive", "bob") == "sales/archive belongs to bob\n"
    assert line.run("bucket", "owner", "sales/archive", "") == "sales/archive belongs to the owner of its volume\n"
    assert [one["volume"] for one in line.json("volume", "list", "--owner", "eve")] == ["sales"]


def test_quotas_and_links(line: Line) -> None:
    line.run("bucket", "link", "sales/latest", "sales/reports")
    line.run("key", "put", "sales/latest/february", "--size", "10")
    assert "february" in line.run("key", "list", "sales/reports")
    said = line.run("bucket", "quota", "sales/archive", "--bytes", "300000000", "--names", "1")
    assert "quotas of sales/archive: " in said
    line.run("key", "put", "sales/archive/one", "--size", "10")
    assert "QUOTA_EXCEEDED" in line.run("key", "put", "sales/archive/two", "--size", "10", status=1)
    assert "QUOTA_ERROR" in line.run("volume", "quota", "sales", "--bytes", "500000000", status=1)
    line.run("bucket", "quota", "sales/archive")
    line.run("key", "put", "sales/archive/two", "--size", "10")
