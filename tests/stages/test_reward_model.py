"""A Bradley-Terry reward model: its loss, and that it learns what is preferred."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from posttrain.components.penalties.kl import KL
from posttrain.components.penalties.score_square import ScoreSquare
from posttrain.components.rankings.bradley_terry import BradleyTerry
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.errors import UserError
from posttrain.methods.preference.rlhf_workflow import rlhf_workflow
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import SCORE
from posttrain.stages import Models
from posttrain.stages.pairs import WEIGHT, pair_examples
from posttrain.stages.reward_model import RewardModelTraining, bradley_terry
from posttrain.training.learner import Learner, Loss, evaluate_examples
from posttrain.training.settings import Learning
from posttrain.types import Task, Tokens
from tests.builders import tokens

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def scored(score_T: Tensor) -> Tokens:
    """Two pairs, of two and one and of one and two tokens; the second and the third completion are preferred."""
    rows = [[0.0, 0.0], [0.0], [0.0], [0.0, 0.0]]
    advantage = [[-1.0, -1.0], [1.0], [1.0], [-1.0, -1.0]]
    return replace(tokens(rows, advantage=advantage, group_N=[0, 0, 1, 1]), signals={SCORE: score_T})


SCORES = torch.tensor([9.0, 0.5, 2.0, -1.0, 9.0, 0.0], dtype=torch.float64)


def test_the_loss_by_hand() -> None:
    """Only what the head returns for the last tokens counts: 0.5 and 2, then -1 and 0."""
    result = bradley_terry(scored(SCORES))
    first, second = math.log1p(math.exp(-1.5)), math.log1p(math.exp(1.0))
    assert result.loss_T.tolist() == pytest.approx([first] * 3 + [second] * 3)
    assert {name: values.tolist() for name, values in result.metrics.items()} == {
        "pair_accuracy": [1.0, 0.0],
        "pair_margin": [1.5, -1.0],
        "chosen_reward": [2.0, -1.0],
        "rejected_reward": [0.5, 0.0],
    }


def test_finite_differences() -> None:
    assert torch.autograd.gradcheck(lambda x: bradley_terry(scored(x)).loss_T, SCORES.clone().requires_grad_())


def test_only_differences_count() -> None:
    torch.testing.assert_close(bradley_terry(scored(SCORES + 7)).loss_T, bradley_terry(scored(SCORES)).loss_T)


def test_how_a_step_is_cut_does_not_change_the_gradient(tiny_folder: Path) -> None:
    model = load_policy("reward", Model(source=str(tiny_folder), head="reward", trained=True), {}, torch.device("cpu"))
    with torch.no_grad():
        model.get_parameter("value_head.weight").copy_(torch.linspace(-1, 1, 32)[None])
    tasks = WorkedSolutions(size=8).load()
    examples = [e for i, task in enumerate(tasks) for e in pair_examples(model, task, task.preferences[0], i)]
    loss = Loss(per_token=bradley_terry, reducer=Sequences(), needs=frozenset({SCORE}), whole_groups=True)
    gradients = []
    for size in (10**6, 200, 1):
        model.zero_grad()
        Learner(model, Learning(micro_batch_tokens=size), seed=0, num_steps=1).accumulate(examples, loss, 0.0)
        found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        gradients.append(torch.cat(found).double())
    assert gradients[0].norm() > 1e-3
    for cut in gradients[1:]:
        assert (cut - gradients[0]).norm() / gradients[0].norm() < 1e-5


def write_digits(path: Path, count: int, seed: int) -> None:
    """Pairs of digits after a few letters: the even one is preferred."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "prompt": "".join(rng.choice(list("abcdefgh"), 5)) + ":",
            "chosen": str(2 * rng.integers(5)),
            "rejected": str(2 * rng.integers(5) + 1),
        }
        for _ in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def only_the_reward_model(recipe: Recipe) -> Recipe:
    return replace(recipe, stages={"reward_model": recipe.stages["reward_model"]})


@pytest.mark.slow
def test_unseen_completions_are_ordered(small: Small, train: Train, tmp_path: Path) -> None:
    write_digits(tmp_path / "pairs.jsonl", 400, seed=0)
    changes = [f"tasks={tmp_path / 'pairs.jsonl'}", "evaluation.verifier.kind=format", "batch=16", "max_steps=24"]
    changes += ["evaluation.holdout=5", "evaluation.sampling.max_tokens=2", "reward_model.learner.optimizer.lr=1e-2"]
    models, store = train(override(only_the_reward_model(small(rlhf_workflow())), changes))
    assert store.metrics()[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert models["policy"].version == 0 and models["reward"].version == 24
    assert score(models["reward"], "hgfed:", "02468") > score(models["reward"], "hgfed:", "13579")


def score(model: Policy, prompt: str, digits: str) -> float:
    """Mean score of the digits as completions."""
    from posttrain.stages.sft import demonstration
    from posttrain.training.packing import example_of

    examples = [example_of(demonstration(model, Task(key="k", prompt=prompt), digit), {}) for digit in digits]
    found = evaluate_examples(model, examples, frozenset({SCORE}), max_tokens=4096)
    return float(np.mean([signals[SCORE][-1] for signals in found]))


def test_a_model_with_another_head_is_refused(small: Small, train: Train) -> None:
    recipe = override(only_the_reward_model(small(rlhf_workflow())), ["models.reward.head=language"])
    with pytest.raises(UserError, match=r"'reward' has a language head: it gives certainty and entropy .*, not score"):
        train(recipe)


def test_the_role_is_a_field() -> None:
    assert RewardModelTraining(reducer=Sequences(), role="judge").roles == {"judge"}


def test_a_ranking_and_penalties_by_hand() -> None:
    """A margin of the pair's strength, whose weight is that of its loss and not of the penalty."""
    stage = RewardModelTraining(
        reducer=Sequences(), ranking=BradleyTerry(by="strength"), regularizers={"small": ScoreSquare(coefficient=0.1)}
    )
    numbers = {"strength": np.array([1.5, 0.0]), WEIGHT: np.array([1.0, 2.0])}
    found = stage._loss(scored(SCORES), numbers)
    first, second = math.log(2), 2 * math.log1p(math.exp(1.0))
    assert found.loss_T.tolist() == pytest.approx(
        [first + 0.025] * 2 + [first + 0.4] + [second + 0.1] + [second + 0.0] * 2
    )
    assert found.metrics["small/square"].tolist() == [0.25, 4.0, 1.0, 0.0]
    plain = RewardModelTraining(reducer=Sequences())._loss(scored(SCORES), {})
    assert torch.equal(plain.loss_T, bradley_terry(scored(SCORES)).loss_T)


def test_a_penalty_that_reads_no_score_is_refused() -> None:
    with pytest.raises(ValidationError, match="'kl' is no penalty of scores; take score_barrier or score_square"):
        RewardModelTraining(reducer=Sequences(), regularizers={"kl": KL()})
