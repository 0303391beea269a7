"""Values of logged and regenerated dialogues: the losses by hand, and what is made of a log."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.components.environments.donor import PLEAS, kind_of
from posttrain.errors import UserError
from posttrain.methods.agents.hindsight import hindsight
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import SCORES
from posttrain.stages import Models
from posttrain.stages.hindsight import Hindsight, implicit
from posttrain.types import Task
from tests.builders import tokens

Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_the_losses_by_hand_and_their_gradient() -> None:
    """One turn, and another one of its state: V is 1 below and 1 above the copy's Q of 2, both Q are 1 off."""
    score = torch.tensor(
        [[9.0, 9.0, 1.0, 3.0], [0.0, 2.0, 9.0, 9.0], [0.0, 2.0, 9.0, 9.0]], dtype=torch.float64, requires_grad=True
    )
    base = tokens([[0.0, 0.0], [0.0]], advantage=[[0.0, 0.0], [0.0]], group_N=[0, 0])
    own = replace(base, turn_T=torch.tensor([0, 1, 2]))
    aim = np.array([[1.0, 1.0, 2.0]], np.float32)

    def loss(x: torch.Tensor, conservative: float = 0.25) -> torch.Tensor:
        return implicit(replace(own, signals={SCORES: x}), aim, 0.7, conservative).loss_T

    plain = loss(score, 0.0).tolist()
    assert plain == pytest.approx([0.7 * 1 + 0.3 * 1, 1 + 1, 0.0]), "states are no options, and other turns no targets"
    assert loss(score).tolist() == pytest.approx([1.0, 2 + 0.25 * 2 * math.log(2), 0.0]), "two equal options each"
    assert torch.autograd.gradcheck(loss, score)


def test_half_the_squared_error_at_one_half() -> None:
    score = torch.tensor([[0.0, 0.0, 1.0, 4.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    own = replace(tokens([[0.0, 0.0]], advantage=[[0.0, 0.0]], group_N=[0]), turn_T=torch.tensor([0, 1]))
    found = implicit(replace(own, signals={SCORES: score}), np.array([[0.0, 0.0, 2.0]], np.float32), 0.5, 0.0)
    assert found.loss_T[0].item() == 0.5 * 1 + 0.5 * 4


SHORT = (
    "sft.max_steps=2",
    "controller.max_steps=40",
    "hindsight.clone_steps=1",
    "hindsight.value_steps=2",
    "hindsight.batch=8",
    "hindsight.tasks={kind: pleas, size: 40}",
    "evaluation.holdout=2",
    "threads=1",
)


@pytest.mark.slow
def test_regenerated_dialogues_stand_beside_the_log(train: Train) -> None:
    models, record = train(override(hindsight(), list(SHORT)))
    row = next(row for row in record.metrics() if "regenerated/proposed" in row)
    assert row["regenerated/proposed"] == 40
    assert row["dialogues"] == 40 + row.get("regenerated/kept", 0.0) > 40
    assert record.metrics()[-1]["critic/q"] == record.metrics()[-1]["critic/q"], "it is a number"
    assert {"critic", "target_critic"} <= set(models)


def test_a_log_without_rewards_is_refused() -> None:
    stage = hindsight().stages["hindsight"]
    assert isinstance(stage, Hindsight)
    [task, *_] = hindsight().tasks.load()
    assert [own.reward for own in stage._log([task])] == task.fields["rewards"]
    with pytest.raises(UserError, match="reward of each in the column 'rewards'"):
        stage._log([replace(task, fields={})])
    with pytest.raises(UserError, match="none of the 1 tasks"):
        stage._log([Task(key="a", prompt="p", fields={"rewards": []})])
    assert kind_of(task) in range(len(PLEAS))
