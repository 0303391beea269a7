"""``python -m posttrain`` is ``posttrain``."""

import sys

from posttrain.cli import main

if __name__ == "__main__":
    sys.exit(main())
