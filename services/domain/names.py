"""Checks of names by Ozone's rules, with the error code for each refused name."""

from __future__ import annotations

import re

MIN_NAME_LENGTH = 3
MAX_NAME_LENGTH = 63
MAX_KEY_BYTES = 4_096
"""Maximum bytes of a path in a command. Moving a directory below another can make longer paths, which listings show."""
MAX_LABEL_LENGTH = 128
MAX_SNAPSHOT_ID_LENGTH = 64
"""Maximum characters of a snapshot's id, all printable ASCII: the id names a directory on disk."""
MAX_CLIENT_ID_LENGTH = 128
MAX_OWNER_LENGTH = 255
MAX_REASON_LENGTH = 1_024
MAX_KEY_TAG_LENGTH = 1_024
SNAPSHOT_INDICATOR = ".snapshot"

_ALLOWED = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z0-9]")
_FORBIDDEN_PAIRS = ("..", ".-", "-.")
_DIGITS_AND_PERIODS = frozenset("0123456789.")


class InvalidNameError(ValueError):
    """A name that breaks the rules."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _check_resource_name(kind: str, name: str, code: str) -> None:
    if not MIN_NAME_LENGTH <= len(name) <= MAX_NAME_LENGTH:
        raise InvalidNameError(
            code, f"{kind} name {name!r} has {len(name)} characters; {MIN_NAME_LENGTH} to {MAX_NAME_LENGTH} are allowed"
        )
    if not _ALLOWED.fullmatch(name):
        raise InvalidNameError(
            code, f"{kind} name {name!r}: lower-case letters, digits, '.' and '-' only, a letter or digit at both ends"
        )
    if any(pair in name for pair in _FORBIDDEN_PAIRS):
        raise InvalidNameError(code, f"{kind} name {name!r} has '.' beside '.' or '-'")
    if _DIGITS_AND_PERIODS.issuperset(name):
        raise InvalidNameError(code, f"{kind} name {name!r} is a number or looks like an address")


_NO_COMPONENTS = frozenset({"", ".", ".."})


def check_volume_name(name: str) -> None:
    """Refuse a volume name that breaks the rules."""
    _check_resource_name("volume", name, "INVALID_VOLUME_NAME")


def check_bucket_name(name: str) -> None:
    """Refuse a bucket name that breaks the rules."""
    _check_resource_name("bucket", name, "INVALID_BUCKET_NAME")


def check_tenant_name(name: str) -> None:
    """Refuse a tenant's name that breaks the rules."""
    _check_resource_name("tenant", name, "INVALID_TENANT_ID")


def check_snapshot_name(name: str) -> None:
    """Refuse a snapshot name that breaks the rules."""
    _check_resource_name("snapshot", name, "INVALID_SNAPSHOT_ERROR")


def is_snapshot_id(snapshot_id: str) -> bool:
    """Return whether a text can be a snapshot's id, which names a directory on disk."""
    return 1 <= len(snapshot_id) <= MAX_SNAPSHOT_ID_LENGTH and snapshot_id.isascii() and snapshot_id.isprintable()


def check_length(what: str, text: str, max_length: int) -> None:
    """Refuse a text that is longer than its limit. Such texts are stored with every row and listed by the thousands."""
    if len(text) > max_length:
        raise InvalidNameError(
            "INVALID_REQUEST", f"{what} has {len(text)} characters; at most {max_length} are allowed"
        )


def check_label(kind: str, name: str) -> None:
    """Refuse a name of a tag or consumer that is empty, too long, or has a slash or an unprintable character."""
    if not 1 <= len(name) <= MAX_LABEL_LENGTH:
        raise InvalidNameError(
            "INVALID_REQUEST", f"{kind} name {name!r} has {len(name)} characters; 1 to {MAX_LABEL_LENGTH} are allowed"
        )
    if "/" in name or not name.isprintable():
        raise InvalidNameError("INVALID_REQUEST", f"{kind} name {name!r} has a slash or an unprintable character")


def check_key_path(path: str, *, is_tree: bool) -> None:
    """Refuse a key's path: free form in a flat bucket, components without ``.`` and ``..`` in a tree."""
    if not path:
        raise InvalidNameError("INVALID_KEY_NAME", "a key's path cannot be empty")
    if "\0" in path:
        raise InvalidNameError("INVALID_KEY_NAME", "a key's path cannot hold a NUL")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise InvalidNameError("INVALID_KEY_NAME", "a key's path must be encodable as UTF-8") from None
    if size > MAX_KEY_BYTES:
        raise InvalidNameError(
            "INVALID_KEY_NAME", f"a key's path has {size} bytes; at most {MAX_KEY_BYTES} are allowed"
        )
    if path == SNAPSHOT_INDICATOR or path.startswith(f"{SNAPSHOT_INDICATOR}/"):
        raise InvalidNameError("INVALID_KEY_NAME", f"paths below {SNAPSHOT_INDICATOR} are read-only")
    if is_tree and not _NO_COMPONENTS.isdisjoint(path.split("/")):
        raise InvalidNameError("INVALID_PATH", f"path {path!r} has an empty component, '.' or '..'")
