"""FunRL: GRPO with an entropy bonus on thoughts, and tasks whose reference calls are valid."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.errors import UserError
from posttrain.methods.agents.funrl import ROWS, funrl
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
ANY = "selection=null"


def test_weight_0_is_grpo_to_the_bit(small: Small, train: Train, tmp_path: Path) -> None:
    ours = with_reward(small(funrl(arithmetic()), "advantage.weight=0", ANY, "lr=1e-2"), tmp_path, VARIED)
    (one, store), (other, plain) = (
        train(ours),
        train(with_reward(small(grpo(arithmetic()), "lr=1e-2"), tmp_path, VARIED)),
    )
    for mine, theirs in zip(one["policy"].parameters(), other["policy"].parameters(), strict=True):
        assert mine.equal(theirs)
    assert [entry["loss"] for entry in store.metrics()] == [entry["loss"] for entry in plain.metrics()]


def test_the_bonus_reaches_the_tokens_of_the_thoughts(small: Small, train: Train, tmp_path: Path) -> None:
    """Prompts open the thoughts, so that a random completion has some if it happens to close them; here all do."""
    reward = "def score(completion):\n    return float(len(completion) % 2)\n"
    rows = "".join(
        json.dumps({"prompt": f"{n} <think>", "answer": "f(a=1)", "completion": "ab</think><call>f(a=1)</call>"}) + "\n"
        for n in range(40)
    )
    (tmp_path / "mine.jsonl").write_text(rows)
    changes = (f"tasks={tmp_path / 'mine.jsonl'}", "prompts=2", "steps=1", "rollout={kind: demonstrated, n: 4}")
    recipe = small(funrl(arithmetic()))

    recipe = with_reward(override(recipe, [*changes, "filters={}"]), tmp_path, reward)
    _, store = train(recipe)
    rows_with = [row for row in store.rollouts(1) if json.loads(row["info"])["ranges"]["think"]]
    assert rows_with, "the demonstrations have thoughts"
    for row in rows_with:
        ((start, end),) = json.loads(row["info"])["ranges"]["think"]
        advantage = np.array([x for x in row["advantage"] if x is not None])
        assert (end - start) == 2 and (advantage[start:end] >= advantage[end]).all()
        assert len(set(np.delete(advantage, [start, end - 1]).round(6))) == 1
        assert advantage[end] == 0 or (advantage[start:end] > advantage[end]).all()
    assert store.metrics()[0]["parts/think"] > 0


def test_tasks_without_valid_calls_are_left_out(small: Small, train: Train, tmp_path: Path) -> None:
    answers = ["f(a=1)", "42"]
    rows = "".join(json.dumps({"prompt": f"call {n}", "answer": answers[n % 2]}) + "\n" for n in range(40))
    (tmp_path / "mine.jsonl").write_text(rows)
    recipe = with_reward(small(funrl(arithmetic())), tmp_path, VARIED)

    _, store = train(override(recipe, [f"tasks={tmp_path / 'mine.jsonl'}"]))
    prompts = {int(row["prompt"].split()[1]) % 2 for step in (1, 2, 3) for row in store.rollouts(step)}
    assert prompts == {0} and ROWS == (84,)


def test_kappa_is_refused_in_a_recipe(small: Small) -> None:

    with pytest.raises(UserError, match="kappa"):
        small(funrl(arithmetic()), "advantage.kappa=0.5")
