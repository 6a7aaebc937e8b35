"""The page as a process of a plane: ``python -m services.page HOME --port N``, until a signal."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from schemas.private_files import keep_files_private
from services.domain.errors import DeepcleanError
from services.page.server import serving_page
from services.plane.machine.signals import stopping_on_signals


def main(arguments: list[str] | None = None) -> int:
    """Serve the page. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m services.page", description="Serve the page of a plane.")
    parser.add_argument("home", type=Path, help="the plane's directory")
    parser.add_argument("--port", type=int, required=True, help="the port, on loopback")
    options = parser.parse_args(arguments)
    keep_files_private()
    with stopping_on_signals():
        try:
            with serving_page(options.home, options.port):
                threading.Event().wait()
        except KeyboardInterrupt:
            return 0
        except DeepcleanError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
