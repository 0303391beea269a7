"""Hints and answers by hand: rewards of hints, leaks, bare prompts and phases."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts.abstracted import Abstracted, Bare, HintGiven, Hints
from posttrain.engines import Sampling
from posttrain.types import Completion, Group, Score, Task, Trajectory
from tests.builders import ScriptedSampler

TASK = Task(key="a", prompt="2+2", answer="4")


def completion(text: str) -> Completion:
    ids = np.array([*text.encode()], np.int64)
    logp = np.full(len(ids), -1.0, np.float32)
    return Completion(token_ids=ids, logp=logp, stop_reason="stop", version=1, text=text)


class Sayer(ScriptedSampler):
    """Answers by the prompt, in a cycle, and keeps the prompts."""

    def __init__(self, says: dict[str, str], asked: list[tuple[str, int]], draw: float = 0.9) -> None:
        super().__init__("sayer")
        self.says, self.log, self.draw = says, asked, draw

    def bind(self, *key: int | str) -> "Sayer":
        return self

    def uniform(self) -> float:
        return self.draw

    async def sample(self, token_ids: Any, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
        prompt = self.decode(token_ids)
        self.log.append((prompt, n))
        says = self.says[prompt]
        return [completion(says[i % len(says)]) for i in range(n)]


async def scored(group: Group) -> Group:
    """1 for 4, 0 for other answers, and a failure for x."""

    def of(t: Trajectory) -> Score:
        if t.completion == "x":
            return Score(value=float("nan"), status="error")
        return Score(value=float(t.completion == "4"), status="ok" if t.completion == "4" else "wrong")

    return replace(group, trajectories=tuple(t.scored(of(t)) for t in group))


SOLVER = {
    "2+2": "4555",
    "2+2\nhint:a\nanswer:": "4455",
    "2+2\nhint:b\nanswer:": "5555",
    "2+2\nhint:c\nanswer:": "4444",
    "2+2\nhint:d\nanswer:": "xxxx",
    "hint:a\nanswer:": "5",
    "hint:b\nanswer:": "5",
    "hint:c\nanswer:": "5554",
    "hint:d\nanswer:": "5",
}


def played(hints: str, draw: float = 0.9, **settings: Any) -> tuple[list[Group], list[tuple[str, int]]]:
    log: list[tuple[str, int]] = []
    own = Hints(count=len(hints), leaks=settings.pop("leaks", 4))
    rollout = Abstracted(n=4, hints=own, **settings)
    samplers: Any = {"policy": Sayer(SOLVER, log, draw), "writer": Sayer({"2+2\nhint:": hints}, [])}
    return asyncio.run(rollout.collect_scored(TASK, samplers, scored)), log


def test_a_hints_reward_is_the_mean_of_the_answers_with_it() -> None:
    """Without a hint a quarter is right; a helps, b does not, c contains the answer, and d cannot be scored."""
    (group,), log = played("abcd")
    assert [t.completion for t in group] == ["a", "b", "c"]
    found = [(t.score.value, t.score.status) for t in group if t.score]
    assert found == [(0.5, "ok"), (0.0, "wrong"), (0.0, "wrong")]
    assert all(t.segments[1].actor == "writer" and t.segments[1].trained for t in group)
    assert log[:3] == [("2+2", 4), ("hint:a\nanswer:", 4), ("2+2\nhint:a\nanswer:", 4)]
    unchecked, _ = played("c", leaks=0)
    assert unchecked[0].trajectories[0].score is not None and unchecked[0].trajectories[0].score.value == 1.0
    assert played("d")[0] == []


def test_the_solver_answers_with_one_hint() -> None:
    (group,), log = played("a", phase="solver")
    assert [t.score.value for t in group if t.score] == [1.0, 1.0, 0.0, 0.0] and log == [("2+2\nhint:a\nanswer:", 4)]
    assert all(t.fact(HintGiven) == HintGiven(hint="a") and t.segments[1].actor == "policy" for t in group)


def test_bare_prompts_have_no_reward() -> None:
    """They are drawn below the share; whether an answer is right is kept."""
    (group,), log = played("a", draw=0.1, phase="solver")
    assert log == [("2+2", 4)] and [t.score.value for t in group if t.score] == [0.0] * 4
    assert [t.solved for t in group] == [True, False, False, False]
    (rewarded,), _ = played("a", draw=0.1, phase="solver", bare=Bare(zeroed=False))
    assert [t.score.value for t in rewarded if t.score] == [1.0, 0.0, 0.0, 0.0]


def test_held_out_tasks_have_a_hint_for_each_answer() -> None:
    rollout = Abstracted(n=4).held_out(2, Sampling(temperature=0.0))
    assert rollout.helpers == {"writer"} and rollout.hints.sampling.temperature == 0.0
    log: list[tuple[str, int]] = []
    samplers: Any = {"policy": Sayer(SOLVER, log, 0.9), "writer": Sayer({"2+2\nhint:": "ab"}, [])}
    [group] = asyncio.run(rollout.collect(TASK, samplers))
    assert log == [("2+2\nhint:a\nanswer:", 1), ("2+2\nhint:b\nanswer:", 1)]
    assert [t.fact(HintGiven) for t in group] == [HintGiven(hint="a"), HintGiven(hint="b")]
    assert [t.sample for t in group] == [0, 1]


def test_phases_alternate() -> None:
    rollout = Abstracted(phases=4)
    assert [rollout.at(p).phase for p in (0.0, 0.24, 0.25, 0.5, 0.75, 1.0)] == [
        *("writer", "writer", "solver", "writer", "solver", "solver")
    ]
    assert rollout.roles == {"writer"}


def test_prompts_must_show_what_they_need() -> None:
    with pytest.raises(ValidationError, match="must show"):
        Abstracted(hints=Hints(shown="{question}"))
    with pytest.raises(ValidationError, match="must show"):
        Abstracted(hints=Hints(request="hint"))
