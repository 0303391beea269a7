"""Rewards below drawn principles, and the penalty of tokens that became likelier."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.penalties.kl_above import KLAbove
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.principled_model import PrincipledModel
from posttrain.datasets.principles import Principle
from posttrain.signals import logp_of
from posttrain.types import Task
from tests.builders import ScriptedSampler, trajectory
from tests.components.rewards.judging import attempt, score_all

THREE = {
    name: Principle(text=f"is {name}", negated=f"not {name}", weight=w)
    for name, w in zip("xyz", (1, 3, 0), strict=True)
}


class Reader(ScriptedSampler):
    """Scores 1 where a text shows the principle x, else 0."""

    def __init__(self) -> None:
        super().__init__("reward")
        self.read: list[str] = []

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        self.read.append(self.decode(token_ids))
        return float("is x" in self.read[-1])


def test_score_end_and_length_are_added_and_scaled() -> None:
    """10 (1 + 5 * 2 / 1024); cut at the limit 6 less; shorter is better by -0.4; at most 4 for a length."""
    context = RewardContext(samplers={"reward": Reader()})
    reward = PrincipledModel(principles=THREE, lengths={"sums": -0.4})
    short = attempt("two words")
    cut = attempt("two words", stop_reason="length")
    sums = attempt("two words", Task(key="k", prompt="q", domain="sums"))
    values = [s.value for s in score_all(reward, short, cut, sums, context=context)]
    bonus = 5 * 2 / 1024
    assert values == pytest.approx([10 * (1 + bonus), 10 * (1 + bonus - 6), 10 * (1 - 0.4 * bonus)])
    [long] = score_all(replace(reward, longest=2), short, context=context)
    assert long.value == pytest.approx(10 * (1 + 4))


def test_principles_are_drawn_by_weight_without_replacement_and_fixed_lines_follow() -> None:
    reward = PrincipledModel(principles=THREE, drawn=1, fixed=("no lists",))
    names = Counter(reward.names_for(replace(attempt("a"), sample=i), 0, 0)[0] for i in range(400))
    assert names["z"] == 0 and names["y"] / 400 == pytest.approx(0.75, abs=0.07)
    assert sorted(replace(reward, drawn=3).names_for(attempt("a"), 0, 0)) == ["x", "y"]
    boosted = replace(reward, boosts={"sums": ("z",)})
    sums = attempt("a", Task(key="k", prompt="q", domain="sums"))
    assert sum(boosted.names_for(replace(sums, sample=i), 0, 0) == ["z"] for i in range(100)) > 90
    reader = Reader()
    score_all(replace(reward, drawn=2), attempt("a"), context=RewardContext(samplers={"reward": reader}))
    assert reader.read[0].split("\n")[0] in ("is x; is y; no lists", "is y; is x; no lists")


def test_only_tokens_that_became_likelier_are_penalized() -> None:
    one = trajectory(3)
    own = one.behavior_logp
    reference = np.array([own[0] - 2.0, own[1] + 1.0, own[2]], np.float32)
    found = KLAbove(coefficient=0.5).in_reward(one, {logp_of("reference"): reference})
    assert found is not None and found.tolist() == pytest.approx([-1.0, 0.0, 0.0], abs=1e-6)


def test_a_completion_beyond_the_context_is_cut_and_counted_and_one_of_which_nothing_fits_is_an_error() -> None:
    reader = Reader()
    context = RewardContext(samplers={"reward": reader})
    reward = PrincipledModel(principles=THREE, drawn=1)
    fits, long = attempt("two words"), attempt("two words " * 30)
    prompt = len(reader.encode("is x"))
    reader.context = prompt + 100
    scores = score_all(reward, fits, long, context=context)
    assert [s.parts["cut"].value for s in scores] == [0.0, 1.0] and {s.status for s in scores} == {"ok"}
    assert len(reader.encode(reader.read[1])) == reader.context
    reader.context = 2
    [score] = score_all(reward, fits, context=context)
    assert score.status == "error" and "nothing of the completion could be read; give fewer" in score.explanation
