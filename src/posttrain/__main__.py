"""``python -m posttrain`` is ``posttrain``."""

import os
import sys

if sys.path and sys.path[0] in ("", os.getcwd()) and not sys.flags.safe_path:
    del sys.path[0]  # `-m` puts the working folder first, where any file could pass for a library

from posttrain.cli import main

if __name__ == "__main__":
    sys.exit(main())
