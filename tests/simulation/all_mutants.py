"""All faults that the simulator has to find."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.bulk_put_mutants import BULK_PUT_MUTANTS
from tests.simulation.historical_mutants import HISTORICAL
from tests.simulation.instances_mutants import INSTANCES_MUTANTS
from tests.simulation.link_mutants import LINK_MUTANTS
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS
from tests.simulation.operator_mutants import OPERATOR_MUTANTS
from tests.simulation.quota_mutants import QUOTA_MUTANTS
from tests.simulation.replication_mutants import REPLICATION_MUTANTS
from tests.simulation.rights_mutants import RIGHTS_MUTANTS
from tests.simulation.signing_mutants import SIGNING_MUTANTS
from tests.simulation.silent_mutants import SILENT
from tests.simulation.sweeps_mutants import SWEEPS_MUTANTS
from tests.simulation.unshielded_mutants import UNSHIELDED
from tests.simulation.versions_mutants import VERSIONS_MUTANTS
from tests.simulation.writing_mutants import WRITING_MUTANTS

ALL_MUTANTS: Mapping[str, Mutant] = {
    **BULK_PUT_MUTANTS,
    **INSTANCES_MUTANTS,
    **LINK_MUTANTS,
    **MUTANTS,
    **HISTORICAL,
    **OPERATOR_MUTANTS,
    **REPLICATION_MUTANTS,
    **QUOTA_MUTANTS,
    **RIGHTS_MUTANTS,
    **SIGNING_MUTANTS,
    **SILENT,
    **SWEEPS_MUTANTS,
    **UNSHIELDED,
    **VERSIONS_MUTANTS,
    **WRITING_MUTANTS,
}
