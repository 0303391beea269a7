"""ExPO: explanations are learned beside GRPO, outside of its statistics, and without the answer in the prompt."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.rollouts.explained import Explained
from posttrain.components.tasks.refinements import Refinements
from posttrain.datasets.templates import prompt_from
from posttrain.methods.sampling.expo import expo
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.builders import tokens

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

NAN = math.nan


def test_the_warm_up_has_the_prompts_of_the_rollout() -> None:
    recipe = expo()
    warm_up, rollout = recipe.stages["lesson"].tasks, rl_of(recipe).rollout
    assert isinstance(warm_up, Refinements) and isinstance(rollout, Explained)
    for task, problem in zip(warm_up.load()[:20], warm_up.of.load(), strict=False):
        assert task.prompt == prompt_from(problem, rollout.request, {"answer": str(problem.answer)})
        assert f"#### {problem.answer}" in str(task.prompt)


def brief(small: Small, *changes: str) -> Recipe:
    """Stops at a byte that a model which was not trained writes now and then, so that some tasks are explained."""
    sizes = ["lesson.max_steps=1", "lesson.batch=4", "rl.prompts=8", "rl.steps=2", "rollout.n=3"]
    short = ["lesson.tasks.of.terms=[2, 2]", "tasks.terms=[2, 2]", "rollout.sampling.max_tokens=24"]
    return override(small(expo(), "lesson.tasks.of.size=40"), [*sizes, *short, "rollout.marker=e", *changes])


@pytest.mark.slow
def test_it_trains(small: Small, train: Train) -> None:
    _, store = train(brief(small))
    explained = [row for step in (2, 3) for row in store.rollouts(step) if row["sample"] == 3]
    assert explained, "some are"
    for row in explained:
        own = [r for r in store.rollouts(row["step"]) if r["task_key"] == row["task_key"] and r["sample"] < 3]
        assert row["prompt"] == own[0]["prompt"] and f"#### {row['answer']}" not in row["prompt"]
        assert row["completion"].endswith(f"e {row['answer']}")
        assert f"#### {row['answer']}" in row["info"]
        assert row["dropped_reason"] is None and {a for a in row["advantage"] if a is not None} == {0.0}
        assert {r["group_index"] for r in own} != {row["group_index"]}, "nothing is compared with it"
    losses = [entry["loss"] for entry in store.metrics() if entry["stage"] == "rl"]
    assert all(math.isfinite(loss) for loss in losses)


@pytest.mark.slow
def test_where_every_rollout_failed_the_explanation_is_all_that_is_trained_on(small: Small, train: Train) -> None:
    """Advantages are 0 in this run, so that a weight moves in steps with an explanation only, and by its term alone."""
    moved = {}
    for weight in (0.0, 0.04):
        _, store = train(brief(small, f"rl.objective.weight={weight}"))
        assert {row["reward"] for step in (2, 3) for row in store.rollouts(step) if row["sample"] < 3} == {0.0}
        moved[weight] = [entry["gradient_norm"] > 0 for entry in store.metrics() if entry["stage"] == "rl"]
        explained = [any(row["sample"] == 3 for row in store.rollouts(step)) for step in (2, 3)]
        assert any(explained)
        assert moved[weight] == (explained if weight else [False, False])


@pytest.mark.parametrize(("per", "beta"), [("token", 0.04), ("sequence", 0.04), ("token", 0.5)])
def test_the_loss_is_that_of_the_paper(per: str, beta: float) -> None:
    """Two questions, two rollouts each with A = 1 and -1, and an explanation of one of them: three groups.

    On policy the gradient of a token is -A over 3 groups, 2 rollouts and the rollout's length; that of a token of the
    explanation is -beta over 3 groups, and over its length unless the whole counts.
    """
    stage = rl_of(expo())
    assert isinstance(stage.objective, ByOrigin)
    objective = replace(stage.objective, weight=beta, demonstrated=Likelihood(per=per))  # type: ignore[arg-type]
    these = tokens(
        [[-1.0, -2.0], [-1.5], [-0.5], [-3.0], [-2.0, -1.0, -4.0, -0.5]],
        behavior_logp=[[-1.0, -2.0], [-1.5], [-0.5], [-3.0], [NAN] * 4],
        advantage=[[1.0, 1.0], [-1.0], [1.0], [-1.0], [0.0] * 4],
        group_N=[0, 0, 1, 1, 2],
    )
    weight_N = stage.reducer.weights(these.length_N.numpy(), these.group_N.numpy())
    loss_T = objective(these).loss_T
    total = sum(loss_T[t] * float(weight_N[int(n)]) for t, n in enumerate(these.sequence_T))
    total.backward()  # type: ignore[union-attr]
    each = beta / 3 / (4 if per == "token" else 1)
    assert these.logp_T.grad is not None
    assert these.logp_T.grad.tolist() == pytest.approx([-1 / 12, -1 / 12, 1 / 6, -1 / 6, 1 / 6, *[-each] * 4])
