"""Authorization rules that apply once secrets are set: one for people, one for services.

=================  ============================================================================================
who                may
=================  ============================================================================================
an administrator   everything that people do
a user             operations on volumes that it owns: their buckets, keys, directories and snapshots
a service          the commands that name it as their sender, and no operation of people
=================  ============================================================================================
"""

from __future__ import annotations

from schemas.records import SecretRole

LONGEST_NAME = 64
"""Maximum characters of a user's name. A client id is such a name, a slash and a UUID; its own limit is
``names.MAX_CLIENT_ID_LENGTH``."""
SERVICES = frozenset({"snapshots", "key_deletion", "directory_deletion", "mock_scm"})
"""Services that send commands to other services."""
SIGNED_FOR_MS = 1_800_000
"""Maximum difference between the times at which a user's command was issued and at which the broker received it.
It is half of the hour for which a client's number is remembered. A repeated command is recognized by its number, and it
is too old once the number is forgotten."""


def is_timely(issued_at_ms: int, received_at_ms: int) -> bool:
    """Return whether a user's command was issued at most ``SIGNED_FOR_MS`` before or after the broker received it."""
    return abs(received_at_ms - issued_at_ms) <= SIGNED_FOR_MS


def may_manage(role: SecretRole, user: str, owner: str) -> bool:
    """Return whether a user may manage objects of an owner. Only an administrator manages objects without an owner."""
    return role is SecretRole.ADMINISTRATOR or (role is SecretRole.USER and user != "" and user == owner)


def why_not_named(name: str, role: SecretRole) -> str:
    """Return why a role cannot have this name, or an empty string when it can."""
    if role is SecretRole.SERVICE:
        return (
            ""
            if name in SERVICES
            else f"{name!r} is not a service that signs commands: use one of {', '.join(sorted(SERVICES))}"
        )
    if not 0 < len(name) <= LONGEST_NAME or not name.isascii() or not name.isprintable() or set(name) & set(" /"):
        return f"a user's name has 1 to {LONGEST_NAME} printable ASCII characters, without blanks and slashes"
    return f"{name} is a service: give the user another name" if name in SERVICES else ""
