"""Starts the reclaim job: ``python -m streaming --bootstrap-servers … --shards N --checkpoint DIR``.

Exit status: 0 after SIGTERM or SIGINT, 1 for an error that an operator has to fix, 75 for an error after which a
restart may succeed. Standard error gets one sentence about the error.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from schemas.credentials import CredentialsError, credentials_of, login_file_of, read_secret
from schemas.http_token import check_address
from schemas.private_files import keep_files_private
from services.domain.errors import DeepcleanError, RetryableError
from streaming.reclaiming.checkpoint import HadoopCheckpoint, local_checkpoint
from streaming.reclaiming.inputs import check_inputs
from streaming.reclaiming.metrics import MetricsServer, ReclaimMetrics
from streaming.reclaiming.reclaim import (
    FULL_BATCH_MESSAGES,
    LONGEST_WAIT_MS,
    MESSAGES_PER_BATCH,
    ReclaimJob,
    ReclaimOptions,
)
from streaming.spark.session import SessionOptions, session_parser, spark_session

STOP_STATUS = 1
TRY_AGAIN_STATUS = 75

logger = structlog.get_logger(__name__)


def parse() -> argparse.Namespace:
    """The command line."""
    jars_directory = Path(sys.prefix).parent / ".deepclean" / "jars" / "spark"  # where make setup puts them
    parser = session_parser("streaming", "Judge deleted entries with Spark.", jars_directory)
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…", help="the broker")
    parser.add_argument("--shards", required=True, type=int, metavar="N", help="partitions of every topic")
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="ADDRESS",
        help="where Spark keeps its place: a directory, or an address of any Hadoop file system (hdfs://…, s3a://…)",
    )
    parser.add_argument(
        "--max-messages-per-batch", type=int, default=MESSAGES_PER_BATCH, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--full-batch-messages",
        type=int,
        default=FULL_BATCH_MESSAGES,
        metavar="N",
        help="start a batch at once when so many messages wait (default: %(default)s)",
    )
    parser.add_argument(
        "--longest-wait-ms",
        type=int,
        default=LONGEST_WAIT_MS,
        metavar="MS",
        help="start a batch with fewer messages so long after the one before (default: %(default)s)",
    )
    parser.add_argument("--metrics-address", default="127.0.0.1", metavar="HOST", help="default: %(default)s")
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve /metrics, /healthz and /readyz (0: a free one)"
    )
    parser.add_argument(
        "--metrics-token-file", type=Path, metavar="FILE", help="token that requests must carry; wanted beyond loopback"
    )
    return parser.parse_args()


def run(options: argparse.Namespace, stop: threading.Event) -> None:
    """Run the job until ``stop`` is set or the job fails.

    Raises:
        CredentialsError: a file of secrets cannot be used.
        DeepcleanError: the reason why the job failed.
    """
    credentials = credentials_of(os.environ)
    token = read_secret(options.metrics_token_file) if options.metrics_token_file else ""
    check_address(options.metrics_address, token)
    metrics = ReclaimMetrics(CollectorRegistry())
    checkpoint = local_checkpoint(options.checkpoint)
    session_options = SessionOptions(
        *(options.jars_directory, options.master, options.heap),
        name="deepclean-reclaim",
        login_file=login_file_of(os.environ),
        conf=tuple(options.conf),
        has_local_checkpoint=checkpoint is not None,
    )
    with ExitStack() as opened:
        server = None
        if options.metrics_port is not None:
            server = MetricsServer(metrics.registry, options.metrics_address, options.metrics_port, token)
            opened.enter_context(closing(server))
        if checkpoint is not None:  # before the seconds that Spark takes to start
            check_inputs(options.bootstrap_servers, options.shards, checkpoint, credentials)
        session = opened.enter_context(spark_session(session_options))
        if checkpoint is None:
            elsewhere = HadoopCheckpoint(session, options.checkpoint)
            check_inputs(options.bootstrap_servers, options.shards, elsewhere, credentials)
        job_options = ReclaimOptions(
            *(options.bootstrap_servers, options.shards, checkpoint or elsewhere),
            *(options.max_messages_per_batch, options.full_batch_messages, options.longest_wait_ms),
            credentials,
        )
        job = opened.enter_context(closing(ReclaimJob(session, job_options, metrics)))
        job.start()
        if server is not None:
            server.is_alive = server.is_ready = lambda: job.is_active
        logger.info("streaming runs", shards=options.shards, metrics_port=server.port if server else None)
        _run_until(stop, job)


def _run_until(stop: threading.Event, job: ReclaimJob) -> None:
    """Wait until ``stop`` is set or the job ends, then stop the job. Raise the DeepcleanError with which it failed."""
    is_over = ThreadPoolExecutor(1, "watcher").submit(job.wait)
    is_over.add_done_callback(lambda _: stop.set())
    stop.wait()
    job.stop()
    is_over.result()


def _log_to_standard_error() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def main() -> int:
    """Run the job; return the exit status."""
    options = parse()
    keep_files_private()
    _log_to_standard_error()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(options, stop)
    except RetryableError as error:
        print(error, file=sys.stderr)
        return TRY_AGAIN_STATUS
    except (DeepcleanError, CredentialsError) as error:
        print(error, file=sys.stderr)
        return STOP_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main())
