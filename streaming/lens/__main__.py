"""The lens' job: reads a source and writes its report. ``deepclean lens`` starts it and answers from the report.

``python -m streaming.lens SOURCE LOCATION --report DIR --jars-directory DIR`` prints its progress, one JSON object a
line, and ends when its standard input ends.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from streaming.lens.writer import ReportWriter
from streaming.spark.child_job import job_session, say
from streaming.spark.session import session_parser

SOURCES = {
    "ozone": "streaming.lens.ozone.source",
    "iceberg": "streaming.lens.iceberg.source",
    "paimon": "streaming.lens.paimon.source",
    "git": "streaming.lens.git.source",
}
"""Each module has a function ``write(location, options, writer)``, which registers buckets and adds things."""


def main() -> None:
    """Write the report that the command line describes."""
    parser = session_parser("streaming.lens", "Read a source and write a report of who holds what.")
    parser.add_argument("source", choices=SOURCES)
    parser.add_argument("location")
    parser.add_argument("--report", type=Path, required=True, metavar="DIR")
    parser.add_argument("--bucket", default="", metavar="VOLUME/BUCKET", help="this bucket alone")
    options = parser.parse_args()
    with (
        job_session(options, f"deepclean-lens-{options.source}") as session,
        ReportWriter(session, options.report, options.source, options.location) as writer,
    ):
        import_module(SOURCES[options.source]).write(options.location, options, writer)
    say(progress=100)


if __name__ == "__main__":
    main()
