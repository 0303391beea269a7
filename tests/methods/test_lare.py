"""LaRe on a point that moves: the reward of every turn is the decoder's."""

from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.methods.credit.lare import ENCODER, ROWS, lare
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.live import LiveView
from posttrain.runs.run import Run
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.episodic_reaching import episodic_reaching
from tests.components.rewards.programs import tier_for

SMALL = ("matching.max_steps=2", "rl.steps=2", "prompts=4", "evaluation.holdout=2", "threads=1")


def trained(recipe: Recipe, root: Path) -> RunStore:
    context = RunContext(override(recipe, SMALL), torch.device("cpu"))
    with RunStore.create(root, recipe.name, to_tree(recipe)) as store:
        Run(context, store, LiveView(lines=True)).execute(context.first_models())
    return RunStore.open(store.folder, reading=True)


def test_rewards_of_turns_come_together_in_the_setting(tmp_path: Path) -> None:
    store = trained(ppo(episodic_reaching()), tmp_path)
    for row in store.rollouts(3):
        rewards = [segment["reward"] for segment in row["segments"] if segment["actor"] == "policy"]
        assert len(rewards) == 4 and rewards[:3] == [0.0] * 3 and rewards[3] > 0


@pytest.mark.slow
def test_the_decoder_is_in_the_record_and_the_encoder_ran(tmp_path: Path) -> None:
    tier_for()
    store = trained(lare(), tmp_path)
    entry = store.metrics()[-1]
    assert np.isfinite(entry["latent/loss"]) and entry["latent/gap"] >= 0
    assert rl_of(lare()).advantage.encoder == ENCODER and ROWS == (249,)  # type: ignore[attr-defined]


def test_another_environment_has_no_encoder_of_this_one() -> None:
    assert rl_of(lare(arithmetic())).advantage.encoder is None  # type: ignore[attr-defined]
    changed = override(lare(), ["advantage.encoder=null", "advantage.form=rrd_unbiased"])
    assert rl_of(changed).advantage.form == "rrd_unbiased"  # type: ignore[attr-defined]


def test_the_encoder_of_the_setting() -> None:
    space: dict[str, object] = {}
    exec(compile(ENCODER, "encoder", "exec"), space)
    assert space["factors"]([0.5, 0.0, 1.0], [3.0, -0.2]) == pytest.approx([0.01, 4.01])  # type: ignore[operator]
