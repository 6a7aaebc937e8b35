"""The states of the page on deploying: a Kafka cluster of three brokers, and a Spark cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from services.plane.machine.home import jars_directory
from services.plane.machine.ports import free_ports
from tests.broker_cluster import BrokerCluster
from tests.spark_cluster import LOOPBACK, SPARK_HOME, START_SECONDS, spark_cluster
from tests.spark_session import java_for_spark
from tests.staged_pages.operations import WITHOUT_WINDOWS
from tests.stages import Stage, Staging
from tests.waiting import eventually

SPARK_PACKAGES = "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0,org.apache.spark:spark-avro_2.13:4.0.0"


@contextmanager
def two_clusters(stage: Stage) -> Iterator[None]:
    """The checkout stands in for the wheel that the page installs. The brokers have no logins."""
    brokers = BrokerCluster(stage.scratch / "brokers", 3)
    try:
        with java_for_spark() as java, spark_cluster(stage.scratch, java, 2) as spark:
            brokers.start()
            (port,) = free_ports(1)
            jars = ",".join(map(str, sorted((jars_directory() / "spark").glob("*.jar"))))
            stage.stand_ins |= {
                "k1:9092,k2:9092,k3:9092": brokers.bootstrap_servers,
                "k1:9092": brokers.nodes[0].bootstrap_servers,
                " --credentials-file admin.json": "",
                "/usr/lib/jvm/java-17-openjdk-amd64": java["JAVA_HOME"],
                "/opt/deepclean/.venv/bin/python": str(stage.place / ".venv" / "bin" / "python"),
                "spark://m1:7077": spark.master,
                SPARK_PACKAGES: f"--jars {jars}",
                "hdfs:///deepclean/streaming": f"{stage.scratch}/streaming",
                "127.0.0.1:9706": f"{LOOPBACK}:{port}",
                "--metrics-port 9706": f"--metrics-port {port}",
            }
            paths = f"PATH=$PATH:{SPARK_HOME}/bin SPARK_HOME={SPARK_HOME} SPARK_LOCAL_IP={LOOPBACK}"
            stage.run(*WITHOUT_WINDOWS, f"export {paths}")
            yield
    finally:
        brokers.stop()


@contextmanager
def the_job_is_ready(stage: Stage) -> Iterator[None]:
    """Afterwards everything is stopped as the page says."""
    readyz = f"http://{stage.stand_ins['127.0.0.1:9706']}/readyz"
    try:
        eventually(lambda: _answers(readyz), START_SECONDS, f"see {stage.place}/streaming.log")
        yield
        eventually(lambda: "freed" in stage.run("deepclean trace show sales/reports/january"))
    finally:
        stage.run("kill -TERM %%", "deepclean down", "wait %% || true")


def _answers(url: str) -> bool:
    try:
        with httpx.Client(trust_env=False) as http:
            return http.get(url).is_success
    except httpx.HTTPError:
        return False


DEPLOYING = Staging(around=two_clusters, blocks={"From two clusters to a plane 3": the_job_is_ready})
