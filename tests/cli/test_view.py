"""The viewer as a command: it prints where it is, answers there, and ends on a signal."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from click.testing import CliRunner

from posttrain.cli import group
from tests.runs.made_runs import make_run


def test_it_answers_until_it_is_interrupted(tmp_path: Path) -> None:
    make_run(tmp_path, sft=1, rl=1, tasks=4)
    command = [sys.executable, "-m", "posttrain", "view", str(tmp_path), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout is not None
        said = ""
        while not said.endswith("}\n"):
            said += viewer.stdout.readline()
        told = json.loads(said)
        assert told["runs"] == 1
        with urllib.request.urlopen(told["url"]) as response:
            assert "quickstart-1" in response.read().decode()
        os.kill(told["pid"], signal.SIGINT)
        assert viewer.wait(timeout=60) == 0


def test_a_place_without_runs_is_a_mistake(tmp_path: Path) -> None:
    found = CliRunner().invoke(group, ["view", str(tmp_path)])
    assert found.exit_code != 0
    assert "is not a run" in str(found.exception)
