"""Faults that free too early, once more without the plane's own nets: the model alone has to notice them."""

from __future__ import annotations

from tests.simulation import historical_mutants as historical
from tests.simulation import mutants
from tests.simulation import silent_scripts as scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant, scripted
from tests.simulation.nets import Fault, unshielded
from tests.simulation.scripts import Script

_GIVEN_AWAY = "gives away the blocks of a held version|the row of what a snapshot holds is removed"
_NOTHING = FaultMix()


def _alone(
    fault: Fault, mix: FaultMix = _NOTHING, *, script: Script | None = None, judges: bool = True, runs: int = 60
) -> Mutant:
    applied = unshielded(fault, judges=judges)
    if script is not None:
        return scripted(applied, script, "given_away", _GIVEN_AWAY, has_forgeries=mix.forgeries > 0)
    return Mutant(applied, mix, "given_away", _GIVEN_AWAY, runs)


UNSHIELDED = {
    f"{name}, unshielded": mutant
    for name, mutant in {
        "before-previous for previous": _alone(mutants.before_previous_for_previous),
        "SCM before the claim": _alone(mutants.scm_before_the_claim),
        "a death taken from the message": _alone(
            mutants.death_from_the_message, FaultMix(forgeries=1.0), script=scripts.a_forged_death, judges=False
        ),
        "no third judge": _alone(mutants.no_third_judge, FaultMix(forgeries=0.3)),
        "a rollback that leaves rows behind": _alone(
            mutants.rollback_drops_what_comes_back_late, script=scripts.a_rollback_and_a_drop
        ),
        "a claim that ignores an undelete": _alone(mutants.claim_ignores_the_undelete),
        "no judge asks the snapshots": _alone(historical.no_judge_asks_the_snapshots, script=scripts.a_held_version),
        "a failed look is an empty chain": _alone(
            historical.a_failed_look_is_an_empty_chain, FaultMix(hole="streaming")
        ),
        "two owners of one block": _alone(historical.two_owners_of_one_block),
        "rows known by their object alone": _alone(
            historical.rows_known_by_their_object_alone, script=scripts.two_versions_of_an_object, judges=False
        ),
        "a drop takes older ones along": _alone(
            historical.a_drop_drops_older_ones, script=scripts.a_drop_beside_an_older_snapshot
        ),
        "what is old is free": _alone(historical.what_is_old_is_free),
    }.items()
}
UNSHIELDED |= {
    # The other oracles of loss, each alone, for a fault that all of them could see.
    "nobody asks the snapshots: the block store's inventory, after each step": scripted(
        unshielded(historical.no_judge_asks_the_snapshots), scripts.a_held_version, "inventory", "SCM has lost"
    ),
    "nobody asks the snapshots: the block store's inventory, at rest": scripted(
        unshielded(historical.no_judge_asks_the_snapshots), scripts.a_held_version, "inventory_at_rest", "held but not"
    ),
}
