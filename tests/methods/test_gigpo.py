from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.errors import AlarmStop
from posttrain.methods.credit.gigpo import ROWS, gigpo
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models

Train = Callable[[Recipe], tuple[Models, RunStore]]

SMALL = (
    "models.policy.shape.layers=1",
    "models.policy.shape.width=16",
    "models.policy.shape.heads=2",
    "models.policy.shape.kv_heads=1",
    "models.policy.shape.mlp_width=32",
    "tasks.size=24",
    "evaluation.holdout=4",
    "sft.max_steps=4",
    "sft.batch=4",
    "rl.steps=3",
    "rl.prompts=3",
    "rl.rollout.n=4",
    "rl.rollout.max_turns=4",
    "threads=1",
)


@pytest.fixture
def tiny() -> Recipe:
    return override(gigpo(), SMALL)


def test_it_is_grpo_in_an_environment() -> None:
    assert ROWS == (267,)
    changed = {d.path for d in differences(grpo(), gigpo())}
    assert {"rollout", "reward", "advantage", "filters.zero_variance", "tasks"} <= changed


@pytest.mark.slow
def test_turns_are_trained_and_recorded(tiny: Recipe, train: Train) -> None:
    models, store = train(tiny)
    assert models["policy"].version == 4 + 3
    entries = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    for step, entry in enumerate(entries, start=5):
        rows = store.rollouts(step)
        assert len(rows) == 3 * 4
        turns = [[s for s in row["segments"] if s["trained"]] for row in rows]
        assert entry["turns"] == pytest.approx(sum(map(len, turns)) / 12)
        assert entry["ratio"] == pytest.approx(1.0, abs=1e-4), "log-probabilities of turns are those of the whole"
        assert entry["turns/reward"] == pytest.approx(sum(s["reward"] for own in turns for s in own) / 12)
        for row, own in zip(rows, turns, strict=True):
            assert [s["turn"] for s in own] == list(range(len(own)))
            assert own[0]["state_key"] == "0"
            assert sum(row["trained"]) == sum(s["length"] for s in own)
            assert {s["actor"] for s in row["segments"]} <= {"prompt", "policy", "environment"}
    (_, _, last) = store.evaluations()
    assert last["mean_turns"] > 0


def test_an_environment_that_fails_stops_the_run_with_the_reason(
    tiny: Recipe, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rollout of these tasks breaks off: none is trained on, and the reason is recorded."""
    (tmp_path / "environments_for_test").mkdir()
    (tmp_path / "environments_for_test" / "down.py").write_text(
        "from posttrain.component import frozen\n"
        "from posttrain.components.environments import Environment, Instance\n\n\n"
        "@frozen\n"
        "class Down(Environment):\n"
        '    """Never there."""\n\n'
        "    def instance(self, task, draw):\n"
        "        raise ConnectionError('nobody answers')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    changes = ["rl.rollout.environment={kind: environments_for_test.down}", "evaluation.rollout={kind: independent}"]
    with pytest.raises(AlarmStop, match=r"12 of 12 rollouts.*ConnectionError: nobody answers"):
        train(override(tiny, changes))
