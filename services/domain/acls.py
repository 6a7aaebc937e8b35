"""Access lists, by Ozone's rules: what an entry gives, how lists are changed, and what a new object inherits.

An entry gives its rights to the object that has it, whatever its scope. An entry of scope DEFAULT is inherited as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import Acl, AclIdentity, AclRight, AclScope
from services.domain.names import MAX_OWNER_LENGTH, check_length
from services.domain.refusals import CommandError

MAX_ACLS = 64
"""Maximum entries that commands give an object. It can have more: those that it inherits, and that of its creator."""
_NAMED = (AclIdentity.USER, AclIdentity.GROUP)
_ORDER = list(AclRight)
Acls = tuple[Acl, ...]


def is_granted(acls: Iterable[Acl], right: AclRight, user: str, groups: Collection[str]) -> bool:
    """Return whether an entry gives a right to a user. Everybody who is asked has signed, so ANONYMOUS names nobody."""
    return any(_gives(acl.rights, right) and _is_named(acl, user, groups) for acl in acls)


def _gives(rights: Collection[AclRight], right: AclRight) -> bool:
    return (right in rights or AclRight.ALL in rights) and AclRight.NONE not in rights


def _is_named(acl: Acl, user: str, groups: Collection[str]) -> bool:
    if acl.identity is AclIdentity.USER:
        return acl.name == user
    if acl.identity is AclIdentity.GROUP:
        return acl.name in groups
    return acl.identity is AclIdentity.WORLD


def with_added(acls: Acls, new: Acl) -> Acls:
    """Return a list with the rights of an entry added. Raise CommandError (INVALID_REQUEST, LIMIT_EXCEEDED)."""
    _check(new)
    place, before = _find(acls, new)
    changed = (*acls[:place], _with_rights(new, {*before, *new.rights}), *acls[place + 1 :])
    if len(changed) > max(MAX_ACLS, len(acls)):
        raise CommandError(ErrorCode.LIMIT_EXCEEDED, f"an object has at most {MAX_ACLS} entries in its access list")
    return changed


def without(acls: Acls, taken: Acl) -> Acls:
    """Return a list without the rights of an entry; an entry without rights is removed."""
    _check(taken)
    place, before = _find(acls, taken)
    left = set(before) - set(taken.rights)
    return (*acls[:place], *((_with_rights(taken, left),) if left else ()), *acls[place + 1 :])


def made_of(acls: Sequence[Acl]) -> Acls:
    """Return a list with each entry of a command, those of one name and scope as one."""
    made: Acls = ()
    for acl in acls:
        made = with_added(made, acl)
    return made


def inherited(parent: Iterable[Acl], scope: AclScope) -> Acls:
    """Return the entries that a new object inherits from another one, with the scope that they have there."""
    return tuple([replace(acl, scope=scope) for acl in parent if acl.scope is AclScope.DEFAULT])


def of_creator(user: str) -> Acl:
    """Return the entry that gives the creator of an object all rights to it."""
    return Acl(AclIdentity.USER, user, (AclRight.ALL,), AclScope.ACCESS)


def _find(acls: Acls, wanted: Acl) -> tuple[int, tuple[AclRight, ...]]:
    """Return place and rights of the entry of a name and scope; without one, the end of the list and no rights."""
    name = (wanted.identity, wanted.name, wanted.scope)
    found = (at for at, acl in enumerate(acls) if (acl.identity, acl.name, acl.scope) == name)
    place = next(found, len(acls))
    return place, acls[place].rights if place < len(acls) else ()


def _with_rights(acl: Acl, rights: set[AclRight]) -> Acl:
    return replace(acl, rights=tuple(sorted(rights, key=_ORDER.index)))


def _check(acl: Acl) -> None:
    check_length("the name of an entry", acl.name, MAX_OWNER_LENGTH)
    if bool(acl.name) != (acl.identity in _NAMED):
        raise CommandError(ErrorCode.INVALID_REQUEST, "an entry for USER or GROUP has a name, another one has none")
    if not acl.rights:
        raise CommandError(ErrorCode.INVALID_REQUEST, "an entry of an access list names at least one right")
