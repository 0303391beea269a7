"""No alarm is raised in a run that learns."""

import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.recipes.files import find_recipe
from posttrain.recipes.tree import ALARMS
from posttrain.runs.store import RunStore

STEPS = 300


@pytest.mark.slow
def test_three_hundred_steps_of_a_run_that_learns_raise_no_alarm(tmp_path: Path) -> None:
    less = [f"rl.steps={STEPS}", "rl.prompts=4", "rollout.n=2", "evaluation.every=0", "evaluation.holdout=10"]
    command = [sys.executable, "-m", "posttrain", "run", "quickstart", *less, "threads=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs/quickstart-1"
    recipe = find_recipe(str(folder / "recipe.yaml"))
    assert set(recipe.alarms) == set(ALARMS), "every rule that there is by itself was on"
    with RunStore.open(folder, reading=True) as store:
        steps = [row for row in store.metrics() if row["stage"] == "rl"]
        assert len(steps) == STEPS
        seen = set().union(*steps)
        assert {"entropy", "reward", "gradient_norm", "solved", "zero_variance", "repeated"} <= seen, "what is watched"
        early, late = (sum(row["reward"] for row in part) / 50 for part in (steps[:50], steps[-50:]))
        assert late > early, "it learns"
        assert [event for event in store.events() if event["kind"] == "alarm"] == []
