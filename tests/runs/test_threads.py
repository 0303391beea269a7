"""How long threads wait for one another."""

import os
import subprocess
import sys

import pytest

from posttrain.runs.threads import SPIN, wait_briefly


def test_it_is_reported_where_nothing_else_is() -> None:
    environment: dict[str, str] = {}
    wait_briefly(environment)
    assert environment == {"GOMP_SPINCOUNT": SPIN}


@pytest.mark.parametrize("own", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_what_users_say_themselves_stays(own: dict[str, str]) -> None:
    environment = dict(own)
    wait_briefly(environment)
    assert environment == own


def test_the_command_line_states_it_before_torch_is_there() -> None:
    script = (
        "import os, sys\n"
        "from posttrain.cli import main\n"
        "main(['--help'])\n"
        "print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)\n"
    )
    bare = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=bare, check=True)
    assert done.stdout.splitlines()[-1] == f"{SPIN} False"
