"""``pytest --faults``: in place of the collected tests, each fault with the test that has to catch it.

A fault is one item: its patch is applied, the named test runs with all its fixtures made anew, and the item passes if
a case of the test fails with the message that the fault names. A fault that survives, or is met by another message,
fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item
from hypothesis import HealthCheck, Phase, settings

from tests.drawn import LONG
from tests.faults.fault import IN_FORCE, Fault, all_faults

FAULT_SECONDS = 600
"""The most that a fault takes: one that makes its test hang is shown with the stack of each thread."""


class FaultItem(pytest.Item):
    """One fault, and the cases of the test that has to catch it."""

    def __init__(self, *, fault: Fault, cases: list[pytest.Item], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fault = fault
        self.cases = cases

    def runtest(self) -> None:
        """Run the cases with the fault until one catches it."""
        seen: list[str] = []
        has_run = False
        for case in self.cases:
            with pytest.MonkeyPatch.context() as patch:
                self.fault.apply(patch)
                patch.setenv(IN_FORCE, f"{self.path.stem}.{self.name}")
                with catch_warnings_for_item(self.config, case.ihook, "runtest", case):  # as its marks say
                    reports = runtestprotocol(case, log=False, nextitem=None)
            failed = [str(report.longrepr) for report in reports if report.failed]
            if any(re.search(self.fault.message, text) for text in failed):
                return
            has_run |= not any(report.skipped for report in reports)
            seen += [f"{case.nodeid}:\n{text}" for text in failed or ["passed"]]
        if not has_run:
            pytest.skip(f"{self.fault.caught_by} is skipped on this machine")
        pytest.fail(f"{self.fault.caught_by} does not fail with {self.fault.message!r}:\n" + "\n".join(seen), False)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where a report says that it is."""
        return self.path, None, self.name


class _Module(pytest.Module):
    """A module of faults; nothing in it is collected as a test."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return []


def pytest_configure() -> None:
    """Have Hypothesis stop at the first failure, and keep nothing of it for the runs without faults."""
    settings.register_profile(
        "faults",
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.differing_executors],
    )
    settings.load_profile("faults")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the faults in place of the tests, before -k chooses among them."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    made: list[pytest.Item] = []
    for name, faults in all_faults().items():
        module: _Module = _Module.from_parent(session, path=config.rootpath / "tests" / "faults" / f"{name}.py")
        for fault in faults:
            if fault.caught_by not in cases:
                raise pytest.UsageError(f"{name}: {fault.name} names a test that is not there: {fault.caught_by}")
            item = FaultItem.from_parent(module, name=fault.name, fault=fault, cases=cases[fault.caught_by])
            item.add_marker(LONG)
            item.add_marker(pytest.mark.timeout(FAULT_SECONDS))
            made.append(item)
    items[:] = made


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run a fault outside of pytest's own set-up, in which the set-up of its cases would be nested."""
    if not isinstance(item, FaultItem):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    call = pytest.CallInfo.from_call(item.runtest, when="call", reraise=(pytest.exit.Exception, KeyboardInterrupt))
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
