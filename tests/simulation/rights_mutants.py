"""Faults in rights: tokens that act when they have ended, and rights that nobody has given, or that nobody asks for."""

from __future__ import annotations

from typing import Any

from schemas.records import AclScope, SecretRow
from services.domain.acls import Acls
from services.metadata.namespace import access, inheritance, rights
from services.metadata.state.acl_rows import AclRows
from services.metadata.state.token_rows import signer_by_token
from services.runtime.parts.signers import Signers
from services.storage.tables import UnitOfWork
from tests.simulation import rights_scripts as scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import Patch
from tests.simulation.scripts import PLAIN, Script

_CARRIED_OUT = r"\(0, 'PERMISSION_DENIED'\)\], answered .* error=''"


def expired_tokens_act(patch: Patch) -> None:
    """Nobody looks when a token expires."""
    patch.setattr(access, "signer_by_token", lambda work, signers, user, _: signer_by_token(work, signers, user, 0))


def cancelled_tokens_act(patch: Patch) -> None:
    """Who has acted by a token once may do so for ever."""
    seen = dict[str, SecretRow | None]()

    def find(work: UnitOfWork, signers: Signers, user: str, log_time_ms: int) -> SecretRow | None:
        seen[user] = signer_by_token(work, signers, user, log_time_ms) or seen.get(user)
        return seen[user]

    patch.setattr(access, "signer_by_token", find)


def every_entry_is_inherited(patch: Patch) -> None:
    """A new key gets the entries of its bucket, those too that are not of scope DEFAULT."""

    def inherited(parent: Acls, _: AclScope) -> Acls:
        return tuple(parent)

    patch.setattr(inheritance, "inherited", inherited)


def no_prefix_counts(patch: Patch) -> None:
    """The list of a prefix is not asked for."""
    patch.setattr(AclRows, "of_longest_prefix", lambda *_: ())


def moves_are_asked_by_their_target(patch: Patch) -> None:
    """Only the prefixes of a move's target are asked, also if that is a directory, below which the move ends."""
    patch.setattr(rights, "moved_to", lambda _transaction, _bucket, _source, target: target)


def links_need_no_right(patch: Patch) -> None:
    """By whatever link somebody names a bucket, the right to the bucket is enough."""
    patch.setattr(access, "require_link", lambda *_: None)


def lists_outlive_keys(patch: Patch) -> None:
    """A deletion leaves the list of a key, which has it again when it comes back."""

    def remove(*_: Any) -> None:
        pass

    patch.setattr(AclRows, "remove", remove)


def _signed(apply: Any, script: Script, oracle: str = "answers", message: str = _CARRIED_OUT) -> Mutant:
    return Mutant(apply, FaultMix(is_secured=True), oracle, message, runs=1, script=script, limits=PLAIN)


RIGHTS_MUTANTS: dict[str, Mutant] = {
    "rights: an expired token acts": _signed(expired_tokens_act, scripts.an_expired_token),
    "rights: a cancelled token acts": _signed(cancelled_tokens_act, scripts.a_cancelled_token),
    "rights: every entry is inherited": _signed(
        every_entry_is_inherited, scripts.a_key_in_a_bucket_with_a_list, "listings", "the access list of .* expected"
    ),
    "rights: inherited rights act": _signed(every_entry_is_inherited, scripts.a_key_of_somebody_else),
    "rights: no prefix counts": _signed(no_prefix_counts, scripts.a_prefix_that_is_not_given),
    "rights: a move into a directory avoids its prefix": _signed(
        moves_are_asked_by_their_target, scripts.a_move_into_a_prefix_that_is_not_given
    ),
    "rights: links need no right": _signed(links_need_no_right, scripts.a_link_that_is_not_given),
    "rights: lists outlive keys": _signed(lists_outlive_keys, scripts.an_undeleted_key),
}
