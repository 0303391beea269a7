"""Fine-Grained RLHF, and clip and delta: rewards of parts of completions through the whole loop."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.components.advantages.gae import GAE
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.segments import Segments
from posttrain.components.rewards.sum import Sum
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.rewards import clip_delta as clipped
from posttrain.methods.rewards import fine_grained_rlhf as fine
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.checks import warnings_of
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.signals import OLD_VALUE
from posttrain.stages import Models
from tests.builders import batch

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_rewards_are_recorded_at_tokens_and_sum_to_the_score(small: Small, train: Train) -> None:
    """A new model writes random bytes, so that lines and sentences are short."""
    reward = "reward={kind: segments, of: {kind: regex, pattern: '[a-z]'}, split: lines}"
    recipe = small(fine.fine_grained_rlhf(arithmetic()), reward, "steps=2", "rollout.sampling.max_tokens=24")
    _, store = train(recipe)
    rows = [row for step in (1, 2) for row in store.rollouts(step)]
    placed = [json.loads(row["info"])["span_rewards"] for row in rows if "span_rewards" in (row["info"] or "")]
    assert any(len(entry) > 1 for entry in placed), "some rollouts have several lines"
    for row in rows:
        spans = json.loads(row["info"] or "{}").get("span_rewards", [])
        assert sum(value for _, value in spans) == pytest.approx(row["reward"], abs=1e-5)
    assert all(np.isfinite(entry["advantage_std"]) for entry in store.metrics())


def test_an_advantage_that_reads_the_sum_is_named_before_the_run(small: Small) -> None:
    recipe = small(grpo(arithmetic()), "reward={kind: segments, of: {kind: regex, pattern: a}}")
    context = RunContext(recipe, torch.device("cpu"))
    found = warnings_of(context.recipe, context.problems, context.first_models())
    assert any("'group_mean' reads only their sum" in text for text in found)
    holistic = override(recipe, ["reward.placed=false"])
    context = RunContext(holistic, torch.device("cpu"))
    assert not [t for t in warnings_of(holistic, context.problems, context.first_models()) if "their sum" in t]


def test_differences_of_steps_need_undiscounted_returns(small: Small) -> None:
    recipe = small(clipped.clip_delta(arithmetic()))
    for change, fits in (("advantage.lam=1", True), ("advantage.lam=0.95", False), ("advantage.gamma=0.9", False)):
        changed = override(recipe, [change])
        context = RunContext(changed, torch.device("cpu"))
        if fits:
            warnings_of(changed, context.problems, context.first_models())
            continue
        with pytest.raises(UserError, match=r"advantage.gamma=1 and advantage.lam=1"):
            warnings_of(changed, context.problems, context.first_models())


def test_what_they_change() -> None:
    reward = rl_of(clipped.clip_delta()).reward
    assert (reward.eta, reward.delta, reward.weight) == (0.5, True, 0.2)  # type: ignore[attr-defined]
    assert clipped.ROWS == (229,) and fine.ROWS == (216,)
    several = Sum(parts={"a": Segments(of=Regex(pattern="a")), "b": Segments(of=Regex(pattern="b"), split="lines")})
    recipe = with_stage(arithmetic(), replace(rl_of(arithmetic()), reward=several))
    assert rl_of(fine.fine_grained_rlhf(recipe)).reward == several


def test_whitened_rewards_by_hand() -> None:
    """Rewards 1 and 0, 0, 2 of two rollouts, values 0: mean 0.75, unbiased variance 0.916667."""
    given = replace(
        batch([[1.0, 2.0]], token_rewards=[[1.0], [0.0, 0.0, 2.0]]),
        signals={OLD_VALUE: (np.zeros(1, np.float32), np.zeros(3, np.float32))},
    )

    def advantages(**settings: object) -> list[list[float]]:
        made = GAE(lam=0.5, whiten=False, whiten_rewards=True, **settings)  # type: ignore[arg-type]
        return [a_T.tolist() for a_T in made({}, given)[1].advantages]

    std = 0.9166667**0.5
    for divisor, scale in (("std", std), ("sqrt_std", std**0.5)):
        one, zero, two = ((r - 0.75) / scale + 0.75 for r in (1.0, 0.0, 2.0))
        short, long = advantages(divisor=divisor)
        assert short == pytest.approx([one], rel=1e-4)
        assert long == pytest.approx([zero + 0.5 * zero + 0.25 * two, zero + 0.5 * two, two], rel=1e-4)
        leaked, same = advantages(divisor=divisor, padded=True)
        assert leaked == pytest.approx([one + 0.5 * (zero + 0.5 * zero)], rel=1e-4) and same == long


def test_the_root_of_the_std_divides_advantages_too() -> None:
    given = replace(
        batch([[1.0, 2.0]], token_rewards=[[1.0], [2.0]]),
        signals={OLD_VALUE: (np.zeros(1, np.float32), np.zeros(1, np.float32))},
    )
    std = 0.5**0.5
    for divisor, scale in (("std", std), ("sqrt_std", std**0.5)):
        found = GAE(divisor=divisor)({}, given)[1].advantages  # type: ignore[arg-type]
        assert [float(a_T[0]) for a_T in found] == pytest.approx([-0.5 / scale, 0.5 / scale], rel=1e-4)
