"""Rewards of several heads: the weighted mean, standardized dimensions, levels; and the surest and the worst head."""

import asyncio
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.heads import Heads
from posttrain.components.rewards.robust import Robust
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all


class Fixed(ScriptedSampler):
    """Gives each rollout, of n words, the n-th row."""

    def __init__(self, *rows: list[float]) -> None:
        super().__init__("reward")
        self.rows = rows

    async def scores(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> np.ndarray:
        return np.array(self.rows[len(token_ids) - 3], np.float32)


def values(reward: Heads | Robust, *rows: list[float]) -> list[float]:
    context = RewardContext(samplers={"reward": Fixed(*rows)})
    texts = [" ".join(["a"] * (n + 1)) for n in range(len(rows))]
    return [s.value for s in score_all(reward, *(attempt(text) for text in texts), context=context)]


def test_the_weighted_mean_of_the_heads() -> None:
    rows = ([3.0, 0.0, -1.0], [0.0, 6.0, 3.0])
    assert values(Heads(), *rows) == pytest.approx([2 / 3, 3.0])
    first = Heads(weights={"a": 1.0, "b": 0.0, "c": 0.0})
    assert values(first, *rows) == [3.0, 0.0], "weights of 1, 0, 0 are the first head"
    assert values(Heads(weights={"a": 1.0, "b": 3.0, "c": 0.0}), *rows) == pytest.approx([0.75, 4.5])


def test_standardized_dimensions_have_no_scale_and_a_constant_one_counts_nothing() -> None:
    """Scores 0, 2 have the mean 1 and the population std 1; 5, 5 count 0."""
    reward = Heads(weights={"a": 1.0, "b": 1.0, "c": 1.0}, standardized=True)
    rows = ([0.0, 5.0, 1.0], [2.0, 5.0, 0.0])
    assert values(reward, *rows) == pytest.approx([(-1 + 0 + 1) / 3, (1 + 0 - 1) / 3], abs=1e-5)
    larger = ([0.0, 5.0, 10.0], [2.0, 5.0, 0.0])
    assert values(reward, *larger) == pytest.approx(values(reward, *rows), abs=1e-5)
    assert values(reward, rows[0]) == [0.0], "one rollout alone"


@pytest.mark.parametrize("own_tokens", [False, True])
def test_a_rollout_beyond_the_context_is_read_up_to_its_end_and_counted(own_tokens: bool) -> None:
    class Short(Fixed):
        context = 4

        async def scores(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> np.ndarray:
            assert len(token_ids) <= 4
            return np.array(self.rows[0], np.float32)

    context = RewardContext(samplers={"reward": Short([1.0, 0.0])})
    for reward in (
        Heads(weights={"a": 1.0, "b": 0.0}, own_tokens=own_tokens),
        Robust(heads=1, role="reward", own_tokens=own_tokens),
    ):
        scores = score_all(reward, attempt("a"), attempt("a a a"), context=context)
        assert [score.value for score in scores] == [1.0, 1.0]
        assert [score.parts["cut"].value for score in scores] == [float(own_tokens), 1.0]
        assert reward.reads_sampled == (frozenset() if own_tokens else {"reward"})


def test_levels_are_expected_ones() -> None:
    """Logits 0, log 2, 0 are 1/4, 1/2, 1/4 of the levels 0, 1, 2."""
    reward = Heads(weights={"a": 1.0}, levels=3)
    assert values(reward, [0.0, math.log(2), 0.0]) == pytest.approx([1.0])


def test_what_is_no_number_or_of_another_size_fails_alone() -> None:
    context = RewardContext(samplers={"reward": Fixed([1.0, 1.0, 1.0], [math.nan, 0.0, 0.0])})
    sound, failed = score_all(Heads(standardized=True), attempt("a"), attempt("a a"), context=context)
    assert (sound.status, sound.value, failed.status) == ("ok", 0.0, "error")
    [other] = score_all(Heads(weights={"a": 1.0}), attempt("a"), context=context)
    assert other.status == "error" and "has 3 outputs, and 1 dimensions take 1" in other.explanation
    with pytest.raises(ValidationError, match="all weights are 0"):
        Heads(weights={"a": 0.0})


MEANS, LOG_STDS = [7.0, 1.0, 2.0], [0.0, -1.0, -1.0]


def robust(outputs: list[float], **settings: object) -> float:
    return Robust(heads=len(outputs) // 2, **settings).of_outputs(np.array(outputs, np.float32)).value  # type: ignore[arg-type]


def test_the_surest_head_is_mixed_with_the_worst() -> None:
    """Heads 1 and 2 are equally sure: the first of them. 0.4 * 1 + 0.6 * 1, and with the mean 10/3."""
    outputs = [*MEANS, *LOG_STDS]
    assert robust(outputs) == pytest.approx(1.0)
    assert robust(outputs, nominal="mean") == pytest.approx(0.4 * 10 / 3 + 0.6)
    sure = [*MEANS, -2.0, -1.0, -1.0]
    assert robust(sure, alpha=1.0) == pytest.approx(7.0), "a sure head at fault is the nominal reward"
    assert robust(sure, alpha=0.0) == pytest.approx(1.0), "and not the worst one"
    assert robust(sure) == pytest.approx(0.4 * 7 + 0.6)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_one_head_or_equal_heads_are_the_same_however_mixed(alpha: float) -> None:
    assert robust([1.5, 0.3], alpha=alpha) == pytest.approx(1.5)
    assert robust([1.5, 1.5, 0.3, 0.1], alpha=alpha, nominal="mean") == pytest.approx(1.5)


def test_an_ensemble_of_another_size_or_without_numbers_fails() -> None:
    assert "set models.ensemble.outputs" in Robust(heads=5).of_outputs(np.zeros(6, np.float32)).explanation
    assert math.isnan(robust([math.inf, 0.0]))


def test_the_engine_gives_all_outputs_in_one_pass_and_the_first_is_the_score(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    policy = load_policy("reward", Model(source=str(folder), head="reward", outputs=3), {}, torch.device("cpu"))
    assert isinstance(policy, LanguageModelPolicy) and policy.value_head is not None
    with torch.no_grad():
        policy.value_head.weight.copy_(torch.linspace(-1, 1, 96).reshape(3, 32))
    policy.save(tmp_path / "saved")
    kept = Model(source=str(tmp_path / "saved"), head="reward", outputs=3)
    sampler = Native().serve(load_policy("reward", kept, {}, torch.device("cpu")), 0).bind()
    sequences = [np.arange(1, 2 + n) for n in (0, 5, 20)]

    async def together() -> list[np.ndarray]:
        return list(await asyncio.gather(*(sampler.scores(ids) for ids in sequences)))

    alone = [asyncio.run(sampler.scores(ids)) for ids in sequences]
    np.testing.assert_allclose(asyncio.run(together()), alone, atol=1e-5)
    assert [row[0] for row in alone] == pytest.approx([asyncio.run(sampler.score(ids)) for ids in sequences])
    assert alone[0].shape == (3,) and len({round(float(x), 4) for x in alone[1]}) == 3
    copied = policy.copied("ensemble", Model(source="role:reward", head="reward", outputs=4))
    assert copied.value_head is not None and copied.value_head.out_features == 4, "other heads begin at 0"
    with pytest.raises(ValidationError, match="set head: reward"):
        Model(source="pebble", outputs=2)
