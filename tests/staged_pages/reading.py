"""The states of the pages that show a plane, or take data out of it: traces, the page, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from schemas.records import BucketLayout, CreateBucket, CreateVolume, DeleteKeys, PutKeys
from services.plane.machine.home import jars_directory
from services.plane.machine.jars import ICEBERG
from services.plane.stack.plane_file import running_plane
from tests.audit_at_scale import execute
from tests.otlp_receiver import Receiver, receiver
from tests.session_shell import ROOT, Started
from tests.spark_cluster import LOOPBACK, SPARK_HOME
from tests.spark_session import java_for_spark
from tests.staged_pages.operations import REPORTS, WITHOUT_WINDOWS, settle
from tests.stages import Stage, Staging
from tests.waiting import eventually

HOLIDAYS = (
    "deepclean up",
    "deepclean volume create photos",
    "deepclean bucket create photos/holidays",
    "deepclean key put photos/holidays/kept.jpg --size 7MiB",
    "deepclean snapshot create photos/holidays july",
    *(f"deepclean key put photos/holidays/{name}.jpg --size 7MiB" for name in ("beach", "new")),
)


class Traced:
    """The states of tracing: a collector listens meanwhile."""

    def __init__(self) -> None:
        self.collector = Receiver()
        self.volumes = 0

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        with receiver() as self.collector:
            stage.run(*WITHOUT_WINDOWS, f"export OTEL_EXPORTER_OTLP_ENDPOINT={self.collector.url}", *HOLIDAYS)
            with stage.client() as plane:
                new = plane.metadata(0).stat("photos", "holidays", "new.jpg")
                bucket = plane.metadata(0).bucket("photos", "holidays")
            stage.stand_ins |= {
                "http://127.0.0.1:4318": self.collector.url,
                "KEY 2817 of bucket 513": f"KEY {new.object_id} of bucket {bucket.object_id}",
            }
            stage.run(*(f"deepclean key delete photos/holidays/{name}.jpg" for name in ("beach", "new")))
            eventually(lambda: "freed" in stage.run("deepclean trace show photos/holidays/new.jpg"))
            stage.run("deepclean key delete photos/holidays/kept.jpg")
            yield
            assert "kept.jpg" in stage.ran["deepclean trace list photos/holidays --open"].output
            assert "freed" in stage.ran["deepclean trace show photos/holidays/beach.jpg"].output
            sent = stage.ran["deepclean trace export --endpoint http://127.0.0.1:4318 --since 1d"].output
            assert f"deletions sent to {self.collector.url}" in sent

    def all_are_sent(self, stage: Stage, _: Started) -> None:
        """What is deleted from now on."""
        eventually(lambda: self._is_sent(stage))

    def _is_sent(self, stage: Stage) -> bool:
        """Delete two hundred keys, of which one of a hundred is sent when it is freed; whether something has come."""
        self.collector.spans.clear()
        self.volumes += 1
        place, names = (f"more{self.volumes}", "photos"), tuple(str(number) for number in range(200))
        with stage.client() as plane:
            execute(plane, CreateVolume(place[0]), CreateBucket(*place, BucketLayout.OBJECT_STORE))
            execute(plane, PutKeys(*place, names, (1_000,) * len(names)), DeleteKeys(*place, names))
        settle(stage)
        return "deletion" in {span.name for _, span in self.collector.spans}


TRACED = Traced()
TRACING = Staging(
    around=TRACED.around,
    endless={
        "deepclean trace export --follow --share 0.01": TRACED.all_are_sent,
        "deepclean trace export --endpoint http://127.0.0.1:4318 --follow": TRACED.all_are_sent,
    },
)


# The page


@contextmanager
def a_browser(stage: Stage) -> Iterator[None]:
    """That notes the address which it opens."""
    browser = stage.scratch / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {stage.scratch}/opened\n')
    browser.chmod(0o755)
    stage.run(f"export BROWSER={browser}")
    yield
    assert is_served(running_plane(stage.home).processes["page"].url)


def is_served(address: str) -> bool:
    with httpx.Client(trust_env=False) as http:
        return "<html" in http.get(address.partition("#")[0]).raise_for_status().text


def a_browser_has_opened_it(stage: Stage, started: Started) -> None:
    opened = stage.scratch / "opened"
    eventually(lambda: opened.exists() and bool(opened.read_text("utf-8")))
    assert opened.read_text("utf-8").strip() in started.output.read_text("utf-8")
    assert is_served(opened.read_text("utf-8").strip())


def it_is_served(_: Stage, started: Started) -> None:
    eventually(lambda: "http://" in started.output.read_text("utf-8"))
    (address,) = re.findall(r"http://\S+", started.output.read_text("utf-8"))
    assert is_served(address)


PAGE = Staging(
    around=a_browser,
    endless={"deepclean page --open": a_browser_has_opened_it, "deepclean page --allow-acts": it_is_served},
)


# Tables

SPARK_SQL_PACKAGES = "--packages org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1"


@contextmanager
def a_freed_and_a_held_version(stage: Stage) -> Iterator[None]:
    stage.run(
        *(*WITHOUT_WINDOWS, *REPORTS, "deepclean snapshot create sales/reports monday"),
        *(f"deepclean key delete sales/reports/2026/{month}" for month in ("january", "february")),
        *("deepclean key put sales/reports/draft --size 1024", "deepclean key delete sales/reports/draft"),
    )
    settle(stage)
    yield


@contextmanager
def another_catalog(stage: Stage) -> Iterator[None]:
    """A directory in place of a REST service."""
    warehouse = stage.scratch / "warehouse"
    stage.stand_ins |= {"type=rest": "type=hadoop", "uri=http://127.0.0.1:8181": f"warehouse={warehouse}"}
    yield
    assert (warehouse / "deepclean" / "ledger" / "metadata").is_dir()


@contextmanager
def spark_with_icebergs_jar(stage: Stage) -> Iterator[None]:
    """It runs the queries of the page from a file, and fails with the first one that does."""
    queries = re.findall(r"^```sql\n(.*?)^```", (ROOT / "docs" / "tables.md").read_text("utf-8"), re.M | re.S)
    (stage.scratch / "queries.sql").write_text("".join(f"{query.strip()};\n" for query in queries), "utf-8")
    (jar,) = (jars_directory() / ICEBERG).glob("iceberg-*.jar")
    stage.stand_ins |= {
        SPARK_SQL_PACKAGES: f"--jars {jar}",
        "lake.warehouse=exported": f"lake.warehouse=exported -f {stage.scratch}/queries.sql",
    }
    with java_for_spark() as java:
        paths = f"JAVA_HOME={java['JAVA_HOME']} SPARK_HOME={SPARK_HOME} PATH=$PATH:{SPARK_HOME}/bin"
        stage.run(f"export {paths} SPARK_LOCAL_IP={LOOPBACK}")
        yield
    (output,) = (ran.output for name, ran in stage.ran.items() if name.startswith("spark-sql"))
    assert "monday" in output


TABLES = Staging(
    around=a_freed_and_a_held_version,
    blocks={"Where the tables are": another_catalog, "Three queries": spark_with_icebergs_jar},
)
