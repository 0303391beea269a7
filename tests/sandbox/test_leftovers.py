"""What a killed process leaves of a sandbox: no process, and folders only until the next start."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary folder with a short name, as the path of a socket needs it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.slow
def test_what_is_laid_out_to_be_attacked_goes_with_its_process(short_path: Path) -> None:
    code = (
        "import os, signal; from posttrain.sandbox.attacks import _Targets\n"
        "with _Targets() as world:\n"
        "    print(world._victim.pid, world.folder, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environ = {**os.environ, "TMPDIR": str(short_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True)
    victim, folder = done.stdout.split()
    for _ in range(3000):
        if not Path("/proc", victim).exists():
            break
        time.sleep(0.01)
    assert not Path("/proc", victim).exists()
    assert Path(folder).parent == short_path and Path(folder).is_dir()
    command = [sys.executable, "-m", "posttrain", "list", "objective"]  # the next start of anything
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
    assert not list(short_path.iterdir())
