"""Runs Python as an ordinary user of this machine, where the tests run as root: nobody, without a single capability.

The interpreter may lie in a home that nobody may enter, so it is shown at another place first, in a mount namespace.
"""

import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import posttrain

PLACE = "/opt"
SHOW = 'mount --bind "$1" "$2" && shift 2 && exec setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"'


def possible() -> bool:
    """Whether there is a way, as root: to be another user, and to show the interpreter."""
    if os.getuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        return False
    return run("pass").returncode == 0


def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a script as nobody."""
    home = Path(sys.base_prefix).resolve()
    binary = Path(PLACE, Path(sys.executable).resolve().relative_to(home))
    paths = os.pathsep.join([str(Path(posttrain.__file__).parents[1]), *site.getsitepackages()])
    variables = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"], "HOME": "/tmp"}
    command = ["unshare", "--mount", "sh", "-c", SHOW, "sh", str(home), PLACE, str(binary), "-c", code, *arguments]
    return subprocess.run(command, env=variables, cwd="/", capture_output=True, text=True, timeout=280)
