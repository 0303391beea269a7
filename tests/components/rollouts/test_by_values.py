"""Turns that are chosen by values."""

import asyncio

import numpy as np

from posttrain.components.environments.donor import Donor, kind_of
from posttrain.components.rollouts.by_values import ByValues
from posttrain.engines import Sampling
from posttrain.types import Completion, Task
from tests.builders import ScriptedSampler

TASK = Task(key="3", prompt="call: ")
TURNS = ("story\n", "facts\n")


class Even(ScriptedSampler):
    """Writes one turn and the other, alternately."""

    def bind(self, *key: int | str) -> "Even":
        return self

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        found = []
        for _ in range(n):
            ids = np.array([*TURNS[self.asked % 2].encode()], np.int64)
            self.asked += 1
            text, logp = self.decode(ids), np.full(len(ids), -0.1, np.float32)
            found.append(Completion(token_ids=ids, logp=logp, stop_reason="stop", version=0, text=text))
        return found


class Critic(ScriptedSampler):
    """Values the plea that suits the donor; the second head doubts it."""

    async def scores(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> np.ndarray:
        good = self.decode(token_ids).endswith(TURNS[kind_of(TASK)])
        return np.array([2.0 * good, 1.0 * good, 0.0, 0.0], np.float32)


def success(beta: float, temperature: float = 1.0, n: int = 200) -> float:
    rollout = ByValues(
        environment=Donor(), n=n, max_turns=2, candidates=2, beta=beta, sampling=Sampling(temperature=temperature)
    )
    [group] = asyncio.run(rollout.collect(TASK, {"policy": Even("p"), "critic": Critic("c")}))
    facts = [t.facts[0].verdict.solved for t in group]  # type: ignore[attr-defined]
    return float(np.mean(facts))


def test_turns_are_drawn_by_the_policy_times_the_exponential_of_the_smaller_value() -> None:
    assert success(4.0, temperature=0.0, n=4) == 1.0
    share = np.exp(1.0) / (1 + np.exp(1.0))
    assert abs(success(1.0) - share) < 0.12 and success(30.0) == 1.0


def test_without_values_it_is_the_policy_and_needs_no_critic() -> None:
    plain = ByValues(environment=Donor(), n=4, max_turns=2, beta=0.0)
    assert not plain.roles and not plain.helpers and not plain.needs
    [group] = asyncio.run(plain.collect(TASK, {"policy": Even("p")}))
    assert len(group) == 4 and all(t.stop_reason == "environment" for t in group)
    assert [s.actor for s in group.trajectories[0].segments] == ["prompt", "policy", "environment", "policy"]
