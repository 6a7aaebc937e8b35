"""The reclaim job for spark-submit: ``spark-submit … reclaim.py --bootstrap-servers …``."""

import sys

from streaming.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
