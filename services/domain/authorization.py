"""Who may do what, once secrets are known: one rule for people, one for services.

=================  ============================================================================================
who                may
=================  ============================================================================================
an administrator   everything that people do
a user             what concerns a volume that it owns: its buckets, keys, directories and snapshots
a service          the commands that name it as their sender, and nothing that people do
=================  ============================================================================================
"""

from __future__ import annotations

from schemas.records import SecretRole

LONGEST_NAME = 64
"""A client id is this, a slash and a UUID, and has a bound of its own (``names.MAX_CLIENT_ID_LENGTH``)."""
SERVICES = frozenset({"snapshots", "key_deletion", "directory_deletion", "mock_scm"})
"""Those who send commands to other services."""
SIGNED_FOR_MS = 1_800_000
"""A user's command is good for so long before and behind the time at which the broker took it. That is half of the hour
for which a client's number is remembered: a command that is sent again is known by its number, and too old when the
number is forgotten."""


def is_timely(issued_at_ms: int, received_at_ms: int) -> bool:
    """Whether a user's command is young enough when the broker takes it, and not from the future either."""
    return abs(received_at_ms - issued_at_ms) <= SIGNED_FOR_MS


def may_manage(role: SecretRole, user: str, owner: str) -> bool:
    """Whether somebody may manage what belongs to an owner; nobody owns what has none."""
    return role is SecretRole.ADMINISTRATOR or (role is SecretRole.USER and user != "" and user == owner)


def why_not_named(name: str, role: SecretRole) -> str:
    """Why a name cannot be of such a role; empty when it can."""
    if role is SecretRole.SERVICE:
        return (
            ""
            if name in SERVICES
            else f"no service that signs is called {name!r}: one of {', '.join(sorted(SERVICES))} is"
        )
    if not 0 < len(name) <= LONGEST_NAME or not name.isascii() or not name.isprintable() or set(name) & set(" /"):
        return f"a user's name has 1 to {LONGEST_NAME} letters, digits or signs, without blanks and slashes"
    return f"{name} is a service: give the user another name" if name in SERVICES else ""
