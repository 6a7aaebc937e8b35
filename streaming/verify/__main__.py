"""The verify job: replays the log of one shard by parts and prints the report.

``deepclean verify`` starts it for a large shard; ``python -m streaming.verify --help`` lists the arguments. It prints
its progress and then the report, each as one JSON object on a line. It ends when its standard input ends.

On a secured plane each process of Spark takes the credentials of the broker's administrator from its environment.
"""

from __future__ import annotations

import functools
from dataclasses import asdict
from pathlib import Path

from schemas.topics import METADATA_COMMANDS
from services.verifier.run import ByParts, replay_shard
from streaming.spark.child_job import end_with_standard_input, say, saying_errors
from streaming.spark.session import SessionOptions, session_parser, spark_session
from streaming.verify.engine import SparkEngine
from streaming.verify.task_log import task_log

SETTINGS = ("spark.python.worker.memory=256m",)
"""What a part receives is sorted in this much memory, and in files beyond it."""


def main() -> None:
    """Verify one shard."""
    parser = session_parser("streaming.verify", "Verify the ledger of a shard.")
    parser.add_argument("--bootstrap-servers", required=True, help="brokers")
    parser.add_argument("--shard", required=True, type=int)
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where each task keeps the state of its replay")
    options = parser.parse_args()
    end_with_standard_input()
    conf = (*SETTINGS, *options.conf)
    started = SessionOptions(options.jars_directory, options.master, options.heap, name="deepclean-verify", conf=conf)
    with saying_errors(), spark_session(started) as session:
        log = task_log(options.bootstrap_servers)
        engine = SparkEngine(session, log.end_offset(METADATA_COMMANDS.name, options.shard))
        by_parts = ByParts(
            engine,
            functools.partial(task_log, options.bootstrap_servers),
            say_whole=lambda why: say(whole=why),
            say_round=lambda number, corrections: say(round=number, corrections=corrections),
        )
        directory = options.directory if started.is_local else None  # other machines have their own
        report = replay_shard(log, options.shard, directory, _say_progress, by_parts)
        say(report=asdict(report))


def _say_progress(done: int, end: int) -> None:
    say(done=done, end=end)


if __name__ == "__main__":
    main()
