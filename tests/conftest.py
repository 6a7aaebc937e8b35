"""What every test may ask for: the seed of a random run, and one real broker for the whole session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import structlog
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from schemas import published
from services.plane.broker.embedded import EmbeddedBroker
from tests.beside import SHARED_PLANE, FilesOfPlanesTogether, scope_of
from tests.unfinished import Unfinished

if TYPE_CHECKING:
    from services.plane.stack.stack import Stack

_STOP_SHARED = pytest.StashKey[Callable[[], None]]()

# The same wherever it runs: what Hypothesis chooses itself depends on the variables of CI services, with whom it
# would play the same examples at every seed.
settings.register_profile(
    "deepclean",
    settings.get_profile("default"),
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("deepclean")
    group.addoption("--bootstrap-servers", default=None, help="use this broker instead of starting one")
    group.addoption("--faults", action="store_true", help="put known defects back and see each caught (tests/faults)")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("deepclean")
    # With them pytest writes the whole difference of two lists, which takes longer than a day at 10,000 items.
    for variable in ("CI", "BUILD_NUMBER"):
        os.environ.pop(variable, None)
    if config.option.faults:
        from tests.faults import runner

        config.pluginmanager.register(runner, "deepclean-faults")
    if not hasattr(config, "workerinput"):  # the one process, or the one that leads the others
        config.pluginmanager.register(Unfinished(), "deepclean-unfinished")
    # Made anew for each call it would take longer than most commands.
    setattr(typer.testing, "_get_command", cache(typer.main.get_command))  # noqa: B010 it is not exported
    # A traceback with all its local values takes seconds, and simulated services fail often.
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, renderer])
    # Planes of tests live for seconds: what Java's second compiler makes of them comes too late to be used.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(autouse=True)
def _nothing_of_other_tests() -> Iterator[None]:
    """A process reads the schemas of one plane, and logs in one way; the next test has another."""
    logging_before = structlog.get_config()
    yield
    structlog.configure(**logging_before)
    published._schemas.clear()
    published._readers.clear()


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are processors: planes mostly wait, for a start or for a condition."""
    return (os.cpu_count() or 1) + 1


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesOfPlanesTogether:
    """Spread tests over processes, when there are several."""
    return FilesOfPlanesTogether(config, log)


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The session's seed: the one given, else a new one, printed in the header and in failures."""
    return int(pytestconfig.option.seed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Put the seed beside a failure that depends on it, since -q leaves the header out."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", f"make test SEED={item.config.option.seed}"))
    return report  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class GivenBroker:
    """A broker that runs already, named with ``--bootstrap-servers``."""

    bootstrap_servers: str


@pytest.fixture(scope="session")
def broker(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker | GivenBroker]:
    """The broker that the session's tests share: topics stay, so each test makes its own under new names."""
    given = pytestconfig.getoption("--bootstrap-servers")
    if given:
        yield GivenBroker(str(given))
        return
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="session")
def shared_stack(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A plane of two shards for the files that ask for it, one after the other: each leaves it running, and uses
    volumes of its own. When the next test is of another file it is stopped.
    """
    from services.plane.stack.stack import Stack

    stack = Stack(tmp_path_factory.mktemp("plane"), shards=2, is_rename_allowed=True)
    pytestconfig.stash[_STOP_SHARED] = stack.stop
    with stack:
        yield stack


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """No plane idles beside tests that do not use it."""
    stop = item.config.stash.get(_STOP_SHARED, None)
    if stop is not None and (nextitem is None or scope_of(nextitem.nodeid) != SHARED_PLANE):
        stop()
        del item.config.stash[_STOP_SHARED]


@pytest.fixture
def bootstrap_servers(broker: EmbeddedBroker | GivenBroker) -> str:
    """Where the shared broker answers."""
    return broker.bootstrap_servers
