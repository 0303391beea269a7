"""ToolRL and AlphaMed: what they change, and that their schedules and levels survive."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.components.rewards.choice import Choice
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.components.selections.by_level import ByLevel
from posttrain.methods.rewards import alphamed as med
from posttrain.methods.rewards import toolrl as tools
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_what_they_change() -> None:
    assert rl_of(tools.toolrl()).reward == ToolCalls() == rl_of(tools.toolrl(arithmetic())).reward
    stage = rl_of(med.alphamed(arithmetic()))
    assert stage.reward == Choice() and stage.selection == ByLevel(reward=Choice(), k=5)


def test_a_schedule_follows_the_steps_of_the_stage(small: Small, train: Train, tmp_path: Path) -> None:
    """Random bytes have neither layout nor calls: the smooth schedule gives -4 at first, then a little more."""
    rows = [json.dumps({"prompt": f"call {n}", "answer": "f(a=1)"}) for n in range(40)]
    (tmp_path / "mine.jsonl").write_text("\n".join(rows))
    reward = "reward={kind: tool_calls, schedule: smooth}"
    recipe = override(small(tools.toolrl(arithmetic())), [f"tasks={tmp_path}/mine.jsonl", reward, "filters={}"])
    _, store = train(recipe)
    found = [entry["reward"] for entry in store.metrics()]
    assert found == pytest.approx([-2 + 2 * step / 150 - 2 - step / 150 for step in range(3)])
