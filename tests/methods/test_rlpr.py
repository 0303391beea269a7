"""RLPR: the form first, then thoughts that make the reference answer likely."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.components.rewards.format import Format
from posttrain.methods.rewards.rlpr import ROWS, rlpr
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from tests.components.rewards.judging import judge

Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = (
    "tasks.tasks.terms=[2, 2]",
    "tasks.tags=[t, a]",
    "reward.parts.probability.tags=[t, a]",
    "reward.parts.form.tags=[t, a]",
    "rollout.n=4",
    "rollout.sampling.max_tokens=8",
    "rl.audit.most_fooled=1",
)


@pytest.mark.slow
def test_it_trains_and_every_part_is_recorded(tiny_folder: Path, train: Train) -> None:
    """The tiny model cannot write the form: every reward is 0, and nothing is learned from equal ones."""
    sizes = ("tasks.tasks.size=60", "evaluation.holdout=5", "sft.max_steps=2", "rl.steps=2", "prompts=3", "threads=1")
    models, store = train(override(rlpr(), [f"model={tiny_folder}", *sizes, *SHORT]))
    assert [entry["stage"] for entry in store.metrics()] == ["sft"] * 2 + ["rl"] * 2
    last = store.metrics()[-1]
    assert {name for name in last if name.startswith("reward/")} == {
        "reward/fooled",
        "reward/form",
        "reward/probability",
        "reward/repetition",
    }
    assert models["policy"].version == 4
    assert "reference" in models, "a copy, taken when the reinforcement began"


def test_demonstrations_have_the_form_that_is_rewarded() -> None:
    assert rl_of(rlpr()).roles == {"policy", "reference"}
    for task in rlpr().tasks.load()[:20]:
        assert judge(Format(alone=False), task.demonstrations[0]).value == 1.0


def test_the_reward_is_nine_parts_of_likelihood_and_one_of_form() -> None:
    reward = rl_of(rlpr()).reward
    assert reward.weights == {"probability": 0.9, "form": 0.1}  # type: ignore[attr-defined]
    assert ROWS == (251,)


@pytest.mark.parametrize("aggregate", ["product", "geometric"])
def test_other_ways_of_putting_probabilities_together_are_a_setting(aggregate: str) -> None:
    changed = override(rlpr(), [f"reward.parts.probability.aggregate={aggregate}"])
    assert rl_of(changed).reward.parts["probability"].aggregate == aggregate  # type: ignore[attr-defined]


def test_held_out_answers_are_scored_as_in_the_setting() -> None:
    mine = override(arithmetic(), ["reward.extract=[hashes]"])
    assert rlpr(mine).evaluation.verifier == rl_of(mine).reward
