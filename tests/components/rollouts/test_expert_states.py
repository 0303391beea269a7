"""Branches from states of an expert: places, masks by segment, and what is returned, by hand."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.environments.keys import Keys
from posttrain.components.rollouts.expert_states import ExpertStates, state_places, trained_segments
from posttrain.types import Completion, Group, Score, Task, Utterance
from tests.builders import ScriptedSampler


@pytest.mark.parametrize(
    ("turns", "states", "places"),
    [(10, 5, [0, 2, 4, 6, 8]), (7, 5, [0, 2, 4, 6]), (3, 5, [0, 1, 2]), (0, 5, []), (4, 0, []), (4, 1, [0])],
)
def test_states_are_evenly_spaced(turns: int, states: int, places: list[int]) -> None:
    assert state_places(turns, states) == places


@pytest.mark.parametrize(
    ("solved", "trained"),
    [
        ([0, 1, 0, 1], [True, False, True]),  # useful, harmful, the recovery
        ([0, 0, 1, 1], [True, True, False]),  # unknown but certified, useful, neutral
        ([0, 1, 0, 0], [True, False, False]),  # unknown after a solved state
        ([0, 0, 0], [False, False]),
        ([0], []),
    ],
)
def test_masks_by_segment(solved: list[int], trained: list[bool]) -> None:
    assert trained_segments([bool(s) for s in solved]) == trained


class Player(ScriptedSampler):
    """Goes right, grabs and opens as in easy rooms: it never oils a key."""

    async def sample(self, token_ids: Any, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
        key, door, state = self.decode(token_ids).rsplit("k", 1)[1].split(" ", 2)
        action = "g" if int(key) == 0 and "held" not in state else "o" if int(door[1:]) == 0 else "r"
        made = await super().sample(token_ids, n, sampling, vectors)
        return [replace(made[0], token_ids=self.encode(action), logp=np.zeros(1, np.float32), text=action)]

    def bind(self, *key: int | str) -> "Player":
        return Player(*key)

    def encode(self, prompt: Any) -> np.ndarray:
        text = prompt if isinstance(prompt, str) else "".join(m["content"] for m in prompt)
        return np.frombuffer(text.encode(), np.uint8).astype(np.int64)

    def encode_completion(self, prompt: Any, text: str) -> np.ndarray:
        return self.encode(text)

    def encode_reply(self, prompt: Any, turn: np.ndarray, reply: Any) -> np.ndarray:
        return self.encode(reply["content"])

    def decode(self, token_ids: np.ndarray) -> str:
        return bytes(np.asarray(token_ids, np.uint8)).decode()


def expert(turns: Sequence[str]) -> tuple[Utterance, ...]:
    return tuple(Utterance(actor="policy", text=turn) for turn in turns)


async def score(group: Group) -> Group:
    """Scored by the verdict."""
    scored = []
    for t in group:
        verdict = t.facts[0].verdict  # type: ignore[attr-defined]
        scored.append(t.scored(Score(value=verdict.value, status="ok" if verdict.solved else "wrong")))
    return replace(group, trajectories=tuple(scored))


def collected(environment: Keys, turns: str, **settings: Any) -> list[Group]:
    rollout = ExpertStates(environment=environment, n=2, max_turns=14, **settings)
    task = Task(key="a", prompt="", episodes=(expert(turns),))
    return asyncio.run(rollout.collect_scored(task, {"policy": Player("policy")}, score))  # type: ignore[dict-item]


def way(environment: Keys) -> tuple[int, int]:
    instance = environment.instance(Task(key="a", prompt=""), lambda: 0.5)
    key, door, _ = instance.begin().text.split()
    return int(key[1:]), int(door[1:])


def test_success_after_the_experts_oil_is_returned_with_the_way_to_it() -> None:
    """The player solves from states after the oil and before the key is thrown away."""
    environment = Keys(which="hard")
    key, door = way(environment)
    turns = "r" * key + "gi" + "r" * (door - key) + "do"
    start, branched = collected(environment, turns, states=100)
    assert not any(t.solved for t in start) and len(start) == 2
    oiled = key + 2
    assert len(branched) == door - key + 1, "one for each state from the oil to the door"
    first = branched.trajectories[0]
    given = [s for s in first.segments if s.actor == "demonstration"]
    assert [s.text for s in given] == list(turns[:oiled]) and all(s.trained for s in given)
    assert [s.text for s in first.segments if s.actor == "policy"] == [*("r" * (door - key)), "o"]
    later = [s.trained for s in branched.trajectories[-1].segments if s.actor == "demonstration"]
    assert later == [True] * oiled + [False] * (door - key), "between solved states the turns are neutral"
    _, own = collected(environment, turns, states=100, prefix="none")
    assert not any(s.trained for t in own for s in t.segments if s.actor == "demonstration")


def test_a_start_that_is_solved_an_expert_who_succeeds_and_no_expert_need_no_branch() -> None:
    easy, hard = Keys(which="easy"), Keys(which="hard")
    key, door = way(hard)
    assert len(collected(easy, "d")) == 1
    assert len(collected(hard, "r" * key + "gi" + "r" * (door - key) + "o")) == 1
    assert len(collected(hard, "")) == 1
    assert len(collected(hard, "r" * key + "gi" + "r" * (door - key) + "do", states=1)) == 1
    assert len(collected(hard, "lll")) == 1, "nothing is solved from any state"
