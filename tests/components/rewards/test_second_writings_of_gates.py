"""Gates, steps and outer levels against a second writing of each formula, on 3,000 random cases."""

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rewards.all_of import AllOf
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.process import shaped
from posttrain.components.rewards.shaped_length import ShapedLength
from posttrain.stages.implicit import passed_on
from posttrain.stages.outer import advantages
from posttrain.types import Group, Score, Segment, Task, Trajectory
from tests.components.rewards.judging import attempt, score_all

CASES = 3000
pytestmark = pytest.mark.slow


@frozen
class Written(Reward):
    """The score that stands at a place of the completion: ``ok:1 wrong:0.5 error:0 none:0``."""

    place: int

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        return [self._read(t.completion.split()[self.place]) for t in group]

    def _read(self, text: str) -> Score:
        status, _, value = text.partition(":")
        if status in ("error", "none"):
            return replace(failure("it is so"), applies=status == "error")
        return Score(value=float(value), status="ok" if status == "ok" else "wrong", explanation="-")


def test_gates() -> None:
    """Row 96: R = 1 if every gate is passed and the tests are, else what a failed gate gives; by statuses or values."""
    rng, seen = Random(96), set[str]()
    for _ in range(CASES // 10):
        threshold, otherwise = rng.choice((None, 0.25, 0.5)), rng.choice((0.0, -1.0))
        gated = Gated(
            gate={"uses": Written(place=0), "compiled": Written(place=1)},
            threshold=threshold,
            reward=Written(place=2),
            otherwise=otherwise,
        )
        both = AllOf(parts={name: Written(place=place) for place, name in enumerate(("uses", "compiled", "tests"))})
        rows = [
            [(rng.choice(("ok", "ok", "wrong", "error", "none")), rng.choice((0.0, 0.25, 0.4, 1.0))) for _ in range(3)]
            for _ in range(10)
        ]
        texts = [" ".join(f"{status}:{value}" for status, value in row) for row in rows]
        tried = [attempt(text) for text in texts]
        for row, found, joined in zip(rows, score_all(gated, *tried), score_all(both, *tried), strict=True):
            gates, (status, value) = row[:2], row[2]
            shut = [s == "wrong" if threshold is None else s in ("ok", "wrong") and v < threshold for s, v in gates]
            if any(s == "error" for s, _ in gates):
                wanted = "error", math.nan
            elif any(shut):
                wanted = "wrong", otherwise
            else:
                wanted = ("error", math.nan) if status in ("error", "none") else (status, value)
            seen.add(wanted[0])
            assert found.status == wanted[0], (row, threshold)
            assert found.value == wanted[1] or found.status == "error"
            known = [s for s, _ in row if s != "none"]
            fine = "error" if "error" in known or not known else "wrong" if "wrong" in known else "ok"
            assert joined.status == fine and joined.applies == (fine != "error" or "error" in known)
            assert fine == "error" or joined.value == (fine == "ok")
    assert seen == {"ok", "wrong", "error"}


def test_lengths() -> None:
    """Linear and cosine: a weighted mean of both ends, by share of the limit or by (1 - cos) / 2 of it."""
    rng, task = Random(97), Task(key="t", prompt="t", answer="7")
    for _ in range(CASES // 30):
        ends = {name: (rng.uniform(-2, 2), rng.uniform(-2, 2)) for name in ("right", "wrong")}
        limit = rng.randint(1, 60)
        tried = [("x" * rng.randint(0, 80) + "\n#### " + rng.choice("78")) for _ in range(30)]
        for shape in ("linear", "cosine"):
            reward = ShapedLength(correct=Match(), limit=limit, shape=shape, **ends)  # type: ignore[arg-type]
            for text, score in zip(tried, score_all(reward, *(attempt(own, task) for own in tried)), strict=True):
                first, last = ends["right" if text.endswith("7") else "wrong"]
                share = min(len(text), limit) / limit
                done = share if shape == "linear" else math.sin(math.pi * share / 2) ** 2
                assert math.isclose(score.value, (1 - done) * first + done * last, abs_tol=1e-12)


def test_clip_and_delta() -> None:
    """Row 229: by a row of scores that is padded with zeros, as the last one becomes with delta."""
    rng = Random(229)
    for _ in range(CASES):
        scores = [rng.random() for _ in range(rng.randint(0, 9))]
        eta, delta = rng.choice((None, rng.random())), rng.random() < 0.5
        padded_K = np.zeros(12)
        padded_K[: len(scores)] = [own if eta is None else -max(eta - own, 0.0) for own in scores]
        if delta:
            padded_K[max(len(scores) - 1, 0) :] = 0.0
            padded_K = padded_K - np.append(padded_K[1:], 0.0)
        assert np.abs(np.array(shaped(scores, eta, delta)) - padded_K[: len(scores)]).max(initial=0.0) < 1e-12


def test_outer_levels() -> None:
    """Row 188: a sum of powers of I + step H by its eigenvalues; gamma^(tokens to the end) times r less its mean."""
    rng = np.random.default_rng(188)
    for _ in range(CASES):
        size, terms, step = int(rng.integers(1, 5)), int(rng.integers(1, 30)), float(rng.uniform(0.05, 0.5))
        basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
        values = -rng.uniform(0.1, 2.0, size)
        slope = rng.normal(size=size)
        hessian = torch.tensor(basis @ np.diag(values) @ basis.T)
        found = passed_on([torch.tensor(slope)], lambda x, h=hessian: [h @ x[0]], step=step, terms=terms)  # type: ignore[misc]
        sums = ((1 + step * values) ** terms - 1) / values
        assert np.abs(found[0].numpy() - basis @ (sums * (basis.T @ slope))).max() < 1e-9
        lengths, gamma = rng.integers(1, 6, 4), float(rng.uniform(0.5, 1.0))
        value_N = rng.normal(size=4)
        group = Group(key="t", trajectories=tuple(_of(int(tokens)) for tokens in lengths))
        own = value_N - value_N.mean()
        for credit_T, gain, tokens in zip(advantages([group], value_N, gamma), own, lengths, strict=True):
            wanted_T = np.array([gain * gamma ** (int(tokens) - 1 - t) for t in range(int(tokens))])
            assert np.abs(credit_T - wanted_T).max() < 1e-5


def _of(tokens: int) -> Trajectory:
    segment = Segment(actor="policy", token_ids=np.zeros(tokens, np.int64), text="a", trained=True)
    scored = Score(value=0.0, status="ok")
    return Trajectory(task=Task(key="t", prompt="t"), segments=(segment,), stop_reason="stop", score=scored)
