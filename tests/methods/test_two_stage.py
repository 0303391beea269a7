"""Two stages: ten epochs of imitation, then rewards of form, correctness by length, and brevity."""

import asyncio
from typing import Any

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.methods.sft_rl.two_stage import two_stage
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.types import Group, Task
from tests.components.rewards.judging import attempt, judge

TASK = Task(key="k", prompt="Q: 6*7\nA:", answer="42")


def test_the_settings() -> None:
    recipe = two_stage()
    stage: Any = rl_of(recipe)
    assert list(recipe.stages) == ["sft", "rl"] and sft_of(recipe).epochs == 10.0
    assert (stage.penalties["kl"].coefficient, stage.penalties["kl"].form) == (0.04, "k3")
    assert (stage.advantage.epsilon, stage.advantage.scale, stage.filters) == (1e-4, "group", {})
    sampling = stage.rollout.sampling
    assert (sampling.temperature, sampling.top_p, sampling.min_p) == (1.0, 0.9, 0.05)
    assert stage.reward.parts["answer"].correct.limit == round(30_000 / 16_384 * 128)
    assert recipe.evaluation.verifier is not None


def test_the_sum_of_the_three_by_hand() -> None:
    """Limit 234 characters. The box is inside the thoughts in two; the long one has more words than both others."""
    short = "<think>so it must be \\boxed{42}</think>"
    long = "<think>so it must be" + " or rather" * 5 + " \\boxed{42}</think>"
    bare = "<think>so it must be</think> \\boxed{42}"
    group = Group(trajectories=tuple(attempt(text, TASK) for text in (short, long, bare)), key="k")
    scores = list(asyncio.run(rl_of(two_stage()).reward.score(group, RewardContext())))
    form = [score.parts["format"].value for score in scores]
    brevity = [score.parts["answer"].parts["brevity"].value for score in scores]
    correct = [score.parts["answer"].parts["correct"].value for score in scores]
    assert form == [1.0, 1.0, 0.0] and brevity == [0.5, -0.5, 0.5]
    assert correct[0] > correct[1] > 0.1
    assert [score.value for score in scores] == pytest.approx(
        [sum(x) for x in zip(form, brevity, correct, strict=True)]
    )


@pytest.mark.parametrize("answer", ["42", "41"])
def test_right_is_above_wrong_at_the_same_length(answer: str) -> None:
    score = judge(rl_of(two_stage()).reward, f"<think>so \\boxed{{{answer}}}</think>", TASK)
    assert (score.value > 1.0) == (score.status == "ok") == (answer == "42")
