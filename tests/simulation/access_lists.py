"""Access lists as the model of a run knows them: plain lists of entries, one for each object, as docs/security.md says.

What a rollback brings back out of a deleted directory has its list or not, depending on whether the directory was
expanded by then: of such an object the list is unknown, and either answer is right.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from schemas.records import Acl, AclIdentity, AclRight, AclScope

UNKNOWN: tuple[Acl, ...] | None = None
Entries = tuple[Acl, ...] | None
"""The entries of an object, in their order; None where nobody can say."""


@dataclass(slots=True)
class AccessLists:
    """All lists of a shard, by object."""

    _lists: dict[Hashable, Entries] = field(default_factory=dict)

    def of(self, name: Hashable) -> Entries:
        """The list of an object."""
        return self._lists.get(name, ())

    def put(self, name: Hashable, entries: Entries) -> None:
        """Give an object a list; an empty one is none."""
        self._lists[name] = entries
        if entries == ():
            del self._lists[name]

    def drop(self, name: Hashable) -> None:
        """An object is gone, and its list with it."""
        self._lists.pop(name, None)

    def forget(self, names: Iterable[Hashable]) -> None:
        """From now on nobody can say what lists some objects have that had one."""
        self._lists |= dict.fromkeys(self._lists.keys() & set(names), UNKNOWN)

    def names(self, kind: str, owner: Hashable) -> list[Hashable]:
        """The objects of a kind that belong to another one, and have lists."""
        return [one for one in self._lists if isinstance(one, tuple) and one[:2] == (kind, owner)]


def grants(entries: Entries, right: AclRight, user: str, groups: Collection[str]) -> bool | None:
    """Whether a list gives a user a right; None where nobody can say."""
    if entries is None:
        return None
    mine = [one for one in entries if _names(one, user, groups) and AclRight.NONE not in one.rights]
    return any(right in one.rights or AclRight.ALL in one.rights for one in mine)


def _names(entry: Acl, user: str, groups: Collection[str]) -> bool:
    return {
        AclIdentity.USER: entry.name == user,
        AclIdentity.GROUP: entry.name in groups,
        AclIdentity.WORLD: True,
        AclIdentity.ANONYMOUS: False,
    }[entry.identity]


def inherited(entries: Entries, scope: AclScope) -> Entries:
    """What a new object gets from one above it."""
    if entries is None:
        return UNKNOWN
    return tuple(replace(one, scope=scope) for one in entries if one.scope is AclScope.DEFAULT)


def first_known(*found: Entries) -> Entries:
    """The first that has an entry, or may have one."""
    return next((one for one in found if one != ()), ())


def added(entries: Entries, more: Sequence[Acl]) -> Entries:
    """A list with the rights of some entries more."""
    if entries is None:
        return UNKNOWN
    changed = list(entries)
    for new in more:
        place = next((at for at, one in enumerate(changed) if _is_same(one, new)), len(changed))
        before = changed[place].rights if place < len(changed) else ()
        changed[place : place + 1] = [replace(new, rights=_sorted({*before, *new.rights}))]
    return tuple(changed)


def without(entries: Entries, taken: Acl) -> Entries:
    """A list without the rights of an entry; it is the first one of that name and scope that loses them."""
    if entries is None:
        return UNKNOWN
    changed = list(entries)
    place = next((at for at, one in enumerate(changed) if _is_same(one, taken)), None)
    if place is not None:
        left = set(changed[place].rights) - set(taken.rights)
        changed[place : place + 1] = [replace(taken, rights=_sorted(left))] if left else []
    return tuple(changed)


def _is_same(one: Acl, other: Acl) -> bool:
    return (one.identity, one.name, one.scope) == (other.identity, other.name, other.scope)


def _sorted(rights: set[AclRight]) -> tuple[AclRight, ...]:
    return tuple(one for one in AclRight if one in rights)
