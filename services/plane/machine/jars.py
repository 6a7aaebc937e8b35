"""Fetch the jars of the broker and of Spark's connectors, with the Ivy that PySpark ships.

``jars.lock`` names every jar and its sha256, so a fetch resolves no dependencies: it fetches exactly the listed jars
and accepts no other digest. The machine configures the repository: by an Ivy settings file (``DEEPCLEAN_IVY_SETTINGS``
or ``~/.ivy2/ivysettings.xml``), else by the mirror in Maven's settings, else by Ivy's default.

    python -m services.plane.machine.jars DIR            fetch the missing jars into DIR/kafka and DIR/spark
    python -m services.plane.machine.jars --of NAME DIR  fetch those of NAME into DIR/NAME: kafka, spark, iceberg, tests
    python -m services.plane.machine.jars --lock FILE    resolve the versions below again and write the list
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from services.plane.machine.errors import StackError, disk_error
from services.plane.machine.java import JavaRuntime, find_java
from services.plane.machine.trust_store import PASSWORD, machine_authorities, write_trust_store

FETCH_SECONDS = 900
SPARK_VERSION = "4.0.0"

# The direct dependencies; all other jars in the lock are their dependencies. log4j-slf4j-impl writes the broker's log.
ROOTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "kafka": (
        ("org.apache.kafka", "kafka_2.13", "4.3.0"),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
    "spark": (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", SPARK_VERSION),
        ("org.apache.spark", "spark-avro_2.13", SPARK_VERSION),
    ),
    # Runtimes of the table formats. What they depend on is in them, or in PySpark. Paimon's own expiry judges the lens,
    # and so does Iceberg's. Eclipse's compiler translates the example of a client in Java on machines without a JDK.
    "iceberg": (("org.apache.iceberg", "iceberg-spark-runtime-4.0_2.13", "1.10.1"),),
    "tests": (("org.apache.paimon", "paimon-bundle", "1.3.1"), ("org.eclipse.jdt", "ecj", "3.39.0")),
}
ICEBERG, TESTS = "iceberg", "tests"
AT_SETUP = frozenset({"kafka", "spark"})
"""The consumers whose jars ``make setup`` fetches. The first ``deepclean export`` fetches those of ``ICEBERG``, 47 MB;
nothing but tests needs those of ``TESTS``. ``make test`` fetches both."""
_BUNDLES = frozenset({ICEBERG, TESTS})
"""The consumers whose jars contain what they depend on."""


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    """One line of the lock: a jar, its consumer, and its sha256."""

    consumer: str
    organisation: str
    module: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the file in its consumer's directory."""
        return f"{self.module}-{self.revision}.jar"


def locked_jars() -> tuple[Jar, ...]:
    """Return the jars of ``jars.lock``."""
    lines = resources.files("services.plane.machine").joinpath("jars.lock").read_text().splitlines()
    return tuple(Jar(*line.split()) for line in lines if line and not line.startswith("#"))


def missing_jars(directory: Path, jars: Iterable[Jar]) -> list[Jar]:
    """Return the jars that are missing or whose digest differs from the lock."""
    return [jar for jar in jars if not _is_intact(directory / jar.consumer / jar.file_name, jar.sha256)]


def classpath(directory: Path, consumer: str) -> str:
    """Return the class path of ``kafka`` or ``spark``: exactly the locked jars, so that other files have no effect.

    Only names are checked, because this runs at every start; ``fetch_jars`` has verified the digests.
    """
    paths = [directory / consumer / jar.file_name for jar in locked_jars() if jar.consumer == consumer]
    absent = [path.name for path in paths if not path.is_file()]
    if absent:
        run = "make setup" if consumer in AT_SETUP else "make test"
        raise StackError(f"{directory / consumer} lacks {absent[0]} ({len(absent)} missing): run {run}.")
    return os.pathsep.join(map(str, paths))


def fetch_jars(directory: Path, java: JavaRuntime | None = None, consumers: Collection[str] = AT_SETUP) -> int:
    """Put the locked jars of some consumers into ``directory``; return the number of jars fetched."""
    wanted = missing_jars(directory, [jar for jar in locked_jars() if jar.consumer in consumers])
    if not wanted:
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="deepclean-jars-") as scratch:
            ivy = Ivy(java or find_java(), Path(scratch))
            for consumer in sorted({jar.consumer for jar in wanted}):
                _fetch_for(consumer, wanted, ivy, directory)
    except OSError as error:
        raise disk_error(directory, error) from error
    return len(wanted)


def _fetch_for(consumer: str, wanted: Iterable[Jar], ivy: Ivy, directory: Path) -> None:
    jars = [jar for jar in wanted if jar.consumer == consumer]
    modules = [(jar.organisation, jar.module, jar.revision) for jar in jars]
    fetched = {path.name: path for path in ivy.retrieve(consumer, modules, is_transitive=False)}
    (directory / consumer).mkdir(parents=True, exist_ok=True)
    for jar in jars:
        found = fetched.get(f"{jar.organisation}#{jar.module}#{jar.revision}.jar")
        if found is None or not _is_intact(found, jar.sha256):
            raise StackError(
                f"{jar.file_name} from this machine's registry is not the one in services/plane/machine/jars.lock: "
                f"look into the registry, or write the lock again if the change is intended."
            )
        target = directory / consumer / jar.file_name
        partial = target.with_suffix(f".partial-{os.getpid()}")
        shutil.copyfile(found, partial)
        partial.replace(target)


class Ivy:
    """Runs Ivy's command line in a scratch directory. It uses the user's download cache, as Spark does."""

    def __init__(self, java: JavaRuntime, scratch: Path) -> None:
        self._java = java
        self._scratch = scratch

    def retrieve(self, consumer: str, modules: Iterable[tuple[str, str, str]], *, is_transitive: bool) -> list[Path]:
        """Fetch these modules, with their dependencies if ``is_transitive``, and return the files.

        The files are named organisation#module#revision.jar.

        Raises:
            StackError: Ivy failed or did not end in time.
        """
        described = self._scratch / f"{consumer}.xml"
        described.write_text(_ivy_file(consumer, modules, is_transitive=is_transitive))
        target = self._scratch / consumer
        command = [
            *(str(self._java.executable), "-Xmx256m", *proxy_properties(os.environ), *self._trust()),
            *("-cp", str(_pyspark_jars() / "*"), "org.apache.ivy.Main"),
            *("-ivy", str(described), "-confs", "default", "-types", "jar", "bundle"),
            *("-retrieve", f"{target}/[organisation]#[module]#[revision].[ext]"),
        ]
        settings = self._settings()
        if settings is not None:
            command += ["-settings", str(settings)]
        try:
            with _only_one():
                run = subprocess.run(
                    command, cwd=self._scratch, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
                )
        except subprocess.TimeoutExpired as error:
            raise _fetch_error(f"no answer within {FETCH_SECONDS} seconds") from error
        if run.returncode != 0:
            raise _fetch_error(_first_complaint(run.stdout + run.stderr))
        return sorted(target.glob("*.jar"))

    def _trust(self) -> list[str]:
        """Return options with which the bundled Java trusts the authorities that the machine trusts."""
        authorities = machine_authorities() if self._java.is_bundled else []
        if not authorities:
            return []
        store = self._scratch / "authorities.jks"
        write_trust_store(store, authorities)
        return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]

    def _settings(self) -> Path | None:
        named = os.environ.get("DEEPCLEAN_IVY_SETTINGS")
        if named:
            if not Path(named).is_file():
                raise StackError(f"DEEPCLEAN_IVY_SETTINGS names {named}, which is not a file: correct or unset it.")
            return Path(named)
        users = Path.home() / ".ivy2" / "ivysettings.xml"
        if users.is_file():
            return users
        mirror = maven_mirror(_maven_settings_files(os.environ))
        if mirror is None:
            return None
        written = self._scratch / "ivysettings.xml"
        written.write_text(_IVY_SETTINGS.format(root=quoteattr(mirror)))
        return written


@contextmanager
def _only_one() -> Iterator[None]:
    """Wait until no other process of this user runs Ivy here: parallel runs read half-written files of its cache."""
    cache = Path.home() / ".ivy2"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "deepclean.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="mirror"/>
  <resolvers><ibiblio name="mirror" m2compatible="true" root={root}/></resolvers>
</ivysettings>
"""


def maven_mirror(files: Iterable[Path]) -> str | None:
    """Return the address of the mirror of Maven's central repository in these settings files, or None."""
    for file in files:
        try:
            # The file is the user's own configuration, so it is trusted.
            tree = ET.parse(file)  # noqa: S314
        except (OSError, ET.ParseError):
            continue
        for mirror in tree.iterfind(".//{*}mirrors/{*}mirror"):
            mirrored = {name.strip() for name in (mirror.findtext("{*}mirrorOf") or "").split(",")}
            address = (mirror.findtext("{*}url") or "").strip()
            if address and mirrored & {"central", "*", "external:*"} and "!central" not in mirrored:
                return address
    return None


def proxy_properties(environment: Mapping[str, str]) -> list[str]:
    """Return Java's options for the proxies in the environment, because Java does not read these variables."""
    properties = []
    for scheme in ("http", "https"):
        name = f"{scheme}_proxy"
        address = urlsplit(environment.get(name) or environment.get(name.upper()) or "")
        if address.hostname:
            properties.append(f"-D{scheme}.proxyHost={address.hostname}")
            properties.append(f"-D{scheme}.proxyPort={address.port or 80}")
    return properties


def write_lock(path: Path) -> None:
    """Resolve ``ROOTS`` with their dependencies and write the list with digests, without jars that PySpark ships."""
    shipped = {file.name for file in _pyspark_jars().glob("*.jar")}
    jars = []
    with tempfile.TemporaryDirectory(prefix="deepclean-jars-") as scratch:
        ivy = Ivy(find_java(), Path(scratch))
        for consumer, roots in ROOTS.items():
            for file in ivy.retrieve(consumer, roots, is_transitive=consumer not in _BUNDLES):
                organisation, module, revision = file.stem.split("#")
                if consumer == "kafka" or f"{module}-{revision}.jar" not in shipped:
                    jars.append(Jar(consumer, organisation, module, revision, _sha256(file)))
    lines = [f"{jar.consumer} {jar.organisation} {jar.module} {jar.revision} {jar.sha256}" for jar in sorted(jars)]
    path.write_text(
        "# consumer organisation module revision sha256; made by python -m services.plane.machine.jars --lock FILE\n"
        + "".join(f"{line}\n" for line in lines)
    )


def _ivy_file(consumer: str, modules: Iterable[tuple[str, str, str]], *, is_transitive: bool) -> str:
    dependencies = "".join(
        f"    <dependency org={quoteattr(organisation)} name={quoteattr(module)} rev={quoteattr(revision)}"
        f' conf="default->default" transitive="{str(is_transitive).lower()}"/>\n'
        for organisation, module, revision in modules
    )
    return (
        '<ivy-module version="2.0">\n'
        f'  <info organisation="deepclean" module={quoteattr(consumer)}/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}  </dependencies>\n</ivy-module>\n"
    )


def _maven_settings_files(environment: Mapping[str, str]) -> list[Path]:
    homes = [environment.get("MAVEN_HOME"), environment.get("M2_HOME")]
    installed = [Path(home) / "conf" / "settings.xml" for home in homes if home]
    return [Path.home() / ".m2" / "settings.xml", *installed, Path("/etc/maven/settings.xml")]


def _pyspark_jars() -> Path:
    """Return the directory of PySpark's own jars. Importing PySpark to find it would take a second."""
    try:
        return Path(str(metadata.distribution("pyspark").locate_file("pyspark/jars")))
    except metadata.PackageNotFoundError as error:
        raise StackError("PySpark is not installed in this Python: run make setup.") from error


def _first_complaint(printed: str) -> str:
    """Return the most informative line of Ivy's output: Ivy prints every attempt, and the problems at the end."""
    lines = [line.strip(" \t:") for line in printed.splitlines()]
    for marker in ("HttpClientHandler: ", "Exception: ", ": not found", "[FAILED"):
        for line in lines:
            if marker in line:
                return line.partition("HttpClientHandler: ")[2].partition(" url=")[0] or line
    return lines[-1] if lines else "it said nothing"


def _fetch_error(reason: str) -> StackError:
    return StackError(
        f"The jars could not be fetched ({reason}): look at the network, or set DEEPCLEAN_IVY_SETTINGS to an Ivy "
        f"settings file for your registry, then run the same command again."
    )


def _is_intact(path: Path, sha256: str) -> bool:
    return path.is_file() and _sha256(path) == sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Fetch the jars or write the lock. On failure print one sentence to standard error and return 1."""
    parser = argparse.ArgumentParser(
        prog="python -m services.plane.machine.jars", description="Fetch the plane's jars."
    )
    parser.add_argument("directory", type=Path, nargs="?", help="where the jars go")
    parser.add_argument("--of", choices=ROOTS, action="append", help="whose jars; by default those of kafka and spark")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="resolve afresh and write the list of jars")
    options = parser.parse_args(arguments)
    if (options.directory is None) == (options.lock is None):
        parser.error("name a directory or --lock FILE")
    try:
        if options.lock is not None:
            write_lock(options.lock)
        else:
            java = find_java()
            count = fetch_jars(options.directory, java, options.of or AT_SETUP)
            print(f"Java {java.version} at {java.home}; jars {f'fetched: {count}' if count else 'complete'}")
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
