"""Criteria in prompts: shares within a group and over training, what is shown, what is learned from."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts.scaffolded import Scaffolded, shown_of
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Completion, Task, Trajectory
from tests.builders import ScriptedSampler, info_of

ROWS = [{"criterion": word, "points": points} for word, points in (("a", 2), ("b", 1), ("c", 1), ("no", -1))]
TASK = Task(key="t", prompt="Q", fields={"criteria": ROWS})
SHORT = Scaffolded(n=3, request="{cover}|{avoid}|{question}")


class Writer(ScriptedSampler):
    """Remembers the prompts; those that are bound to it share the list."""

    asked_for: list[str]

    def bind(self, *key: int | str) -> "Writer":
        found = Writer(*self.key, *key, log=self.completions)
        found.asked_for = self.asked_for
        return found

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        self.asked_for.append(bytes(int(i) for i in token_ids if i > 1).decode())
        return await super().sample(token_ids, n, sampling, vectors)


def collected(rollout: Scaffolded, task: Task = TASK, key: str = "policy") -> tuple[Sequence[Trajectory], list[str]]:
    policy = Writer(key)
    policy.asked_for = []
    [group] = asyncio.run(rollout.collect(task, {"policy": policy}))
    return group.trajectories, policy.asked_for


def test_ratios_within_a_group() -> None:
    assert [Scaffolded(n=5, strength=1.0).ratio(i) for i in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert [Scaffolded(n=3, strength=0.5).ratio(i) for i in range(3)] == [0.5, 0.25, 0.0]
    assert [Scaffolded(n=2, strength=0.5, within="all").ratio(i) for i in range(2)] == [0.5, 0.5]
    assert Scaffolded(n=2, within="none").ratio(0) == 0.0 and Scaffolded(n=1, strength=0.1).ratio(0) == 1.0


def test_the_decay_is_a_switch_at_a_fifth() -> None:
    """Of 350 steps: .48 in step 71, .10 in step 77, .006 in step 85; x is (t - 1) / 349."""
    found = [Scaffolded().decayed((step - 1) / 349) for step in (1, 36, 71, 77, 85, 349)]
    assert found == pytest.approx([1.0, 1.0, 0.48, 0.10, 0.006, 0.0], abs=0.012)
    now = Scaffolded().at(0.2)
    assert now.strength == 0.5 and now.at(0.9) is now and Scaffolded().follows_progress


def test_the_first_sees_all_in_order_and_the_last_a_bare_prompt() -> None:
    trajectories, prompts = collected(replace(SHORT, strength=1.0))
    assert prompts[0] == "a\nb\nc|no|Q" and prompts[2] == "Q"
    assert [info_of(t)["criteria_shown"] for t in trajectories] == [4, 2, 0]
    assert all(t.segments[0].text == "Q" and t.segments[1].logp is not None for t in trajectories)
    assert collected(SHORT.at(1.0))[1] == ["Q"] * 3, "after the decay all prompts are bare"


def test_learned_under_the_prompt_with_criteria() -> None:
    trajectories, _ = collected(Scaffolded(n=2, strength=1.0, trained="shown", request="{cover}|{question}"))
    assert [t.segments[0].text for t in trajectories] == ["a\nb\nc|Q", "Q"]


class Numbers:
    """Draws in this order."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def uniform(self) -> float:
        return self.numbers.pop(0)


def test_half_to_even_without_replacement_and_seeded() -> None:
    rows = [(name, 1.0) for name in "abcde"]
    drawn: Any = Numbers(0.99, 0.0, 0.5)
    assert [name for name, _ in shown_of(rows, 0.5, drawn)] == ["e", "a"], "2.5 is rounded to 2"
    assert not shown_of(rows, 0.1, drawn), "0.5 is rounded to 0"
    assert len(shown_of(rows[:3], 0.5, Numbers(0.1, 0.1))) == 2, "1.5 is rounded to 2"  # type: ignore[arg-type]
    assert collected(SHORT.at(0.0))[1] == collected(SHORT.at(0.0))[1]
    assert len({collected(SHORT.at(0.0), key=str(i))[1][1] for i in range(8)}) > 1


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="none of the 1 tasks has a field 'criteria'"):
        Scaffolded().check([Task(key="t", prompt="Q")])
    with pytest.raises(UserError, match="a criterion is"):
        Scaffolded().check([Task(key="t", prompt="Q", fields={"criteria": ["a"]})])
    with pytest.raises(ValidationError, match=r"a prompt with criteria needs \{cover\}"):
        Scaffolded(request="{question}")
    assert collected(Scaffolded(n=2, strength=1.0), Task(key="t", prompt="Q"))[1] == ["Q", "Q"]
