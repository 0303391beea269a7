"""Heterogeneity: numbers by hand, and the exact environment through a model that writes its traces."""

from random import Random
from typing import Any

import numpy as np
import pytest

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.heterogeneity import ROWS, Heterogeneity, between, summary
from posttrain.components.rewards.planted import Planted as PlantedReward
from posttrain.components.tasks.planted import Planted
from posttrain.engines import Sampling
from posttrain.statistics.planted import Planted as Exact
from posttrain.statistics.tilting import tilted
from posttrain.types import Completion
from tests.builders import ScriptedSampler

HORIZON = 12


class Writer(ScriptedSampler):
    """Procedural policies: gamma is drawn once per trace, and a prefix is continued with its posterior."""

    def __init__(self, gammas: tuple[float, ...], words: dict[str, str], key: tuple[int | str, ...] = ()) -> None:
        super().__init__("policy")
        self.gammas, self.words, self.own = gammas, words, key

    def bind(self, *key: int | str) -> "Writer":
        return Writer(self.gammas, self.words, key)

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        rng = Random(str(self.own))
        word = self.words[str(self.own[1])]
        before = self.decode(token_ids).rpartition("a:")[2].strip() if len(self.own) > 2 else ""
        left, fits = list(word), 0
        for letter in before:
            if left and letter == left[0]:
                left.pop(0)
                fits += 1
        missed = len(before) - fits if left else 0
        chances = [g**fits * (1 - g) ** missed for g in self.gammas]
        found = []
        for _ in range(n):
            gamma, rest, text = rng.choices(self.gammas, chances)[0], list(left), "" if before else " "
            for _ in range(HORIZON - len(before)):
                fit = bool(rest) and rng.random() < gamma
                text += rest.pop(0) if fit else "z"
            ids = np.array([*text.encode()], np.int64)
            logp = np.zeros(len(ids), np.float32)
            found.append(Completion(token_ids=ids, logp=logp, stop_reason="stop", version=0, text=text))
        return found


def examine(gammas: tuple[float, ...], **settings: Any) -> dict[str, Any]:
    tasks = Planted(size=60, horizon=HORIZON)
    words = {task.key: str(task.fields["planted"]) for task in tasks.load()}
    unused: Any = None
    serve: Any = lambda policy: Writer(gammas, words)  # noqa: E731
    sampling = Sampling(max_tokens=HORIZON + 1)
    given = {"tasks": tasks, "reward": PlantedReward(), "n": 32, "sampling": sampling, **settings}
    return dict(Heterogeneity(**given).examine(Subject(name="m", load=lambda: unused, serve=serve)).values)


def test_by_hand() -> None:
    """Rewards 0, 0, 1, 1 and 1/2 four times: variances 1/3 and 0."""
    found = summary([[0.0, 0.0, 1.0, 1.0], [0.5] * 4], 1.0, 0.25)
    assert found["variance"] == pytest.approx(1 / 6)
    assert found["sigma"] == pytest.approx((1 / 3) ** 0.5 / 2)
    assert found["above"] == pytest.approx((0.0 + 1.0) / 2)  # 1 is below 1/2 + 0.577; all equal ones are at the mean
    assert found["verifier_free"]["mean"] == 0.75
    assert found["verifier_based"]["mean"] == pytest.approx((0.75 + 0.5) / 2)  # 0, 0, 1, 1 with chances 1/8 and 3/8
    assert summary([[0.0, 0.0]], 1.0, 1.0)["verifier_free"]["mean"] == 0.0
    assert between([[0.0, 2.0], [4.0, 6.0]]) == pytest.approx(8.0 - 1.0)
    assert between([[1.0, 2.0]]) is None


@pytest.mark.parametrize("gammas", [(0.1, 0.3, 0.9), (0.4,)])
def test_it_is_the_exact_one(gammas: tuple[float, ...]) -> None:
    exact = Exact(gammas, [1 / len(gammas)] * len(gammas), 3, HORIZON)
    found = examine(gammas)
    assert found["variance"] == pytest.approx(exact.variance / HORIZON**2, rel=0.1)
    assert found["base"]["mean"] == pytest.approx(exact.mean / HORIZON, rel=0.05)
    assert found["rewarded"] == pytest.approx(exact.success, abs=0.04)
    best = np.dot(np.arange(HORIZON + 1), tilted(list(range(HORIZON + 1)), exact.rewards.tolist(), 1.0))
    assert found["verifier_based"]["mean"] == pytest.approx(best / HORIZON, rel=0.05)
    assert ROWS == (299,)


def test_blocks_of_steps_are_the_exact_ones() -> None:
    """A space precedes the trace, so that a cut after 5 tokens is one after 4 letters."""
    exact = Exact((0.1, 0.3, 0.9), [1 / 3] * 3, 3, HORIZON).steps() / HORIZON**2
    found = examine((0.1, 0.3, 0.9), cuts=(5,), branching=(16, 8))
    first, second = (block["heterogeneity"] for block in found["blocks"])
    assert first == pytest.approx(exact[:4].sum(), rel=0.2)
    assert first + second == pytest.approx(found["variance"])
    assert [(block["from"], block["to"]) for block in found["blocks"]] == [(0, 5), (5, HORIZON + 1)]
