"""Laws of the curricula, for every member on arrival."""

import asyncio
import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.curricula import Curriculum, State
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts import Row
from posttrain.components.rollouts.independent import Independent
from posttrain.engines import Sampling
from posttrain.stages.fit import Step
from posttrain.stages.memory import pack, unpack
from posttrain.stages.rl.choosing import Choosing
from posttrain.training.settings import Learning
from posttrain.types import Group, Task
from tests.builders import ScriptedSampler, trajectory
from tests.components.curricula.helpers import TableProbe
from tests.conformance._members import each, members

every_member = pytest.mark.parametrize("curriculum", members(Curriculum))

POOL = [
    Task(key=f"t{i}", prompt=f"{i}?", domain="ab"[i % 2], fields={"difficulty": i / 10, "text": [1, 2]})
    for i in range(10)
]


def attempts_at(chosen: list[Task], step: int) -> list[Group]:
    """Scored groups: a task succeeds more often the smaller its number is."""
    rng = np.random.default_rng(step)
    groups = []
    for of in chosen:
        number = int(of.key[1:]) if of in POOL else zlib.crc32(of.key.encode())
        rewards = (rng.random(4) < 1 - number % 11 / 10).astype(float)
        groups.append(Group(key=of.key, trajectories=tuple(trajectory(reward=r, of=of) for r in rewards)))
    return groups


def play(
    curriculum: Curriculum, *, seed: int = 0, steps: int = 8, count: int = 4, between: Callable[[State], State] = dict
) -> list[list[str]]:
    """Keys of the tasks of each step; `between` is done to the state whenever it is handed on."""
    state, chosen_keys = curriculum.start(), []
    for step in range(steps):
        state, chosen = curriculum.select(between(state), POOL, count, seed=seed, step=step)
        chosen_keys.append([pick.task.key for pick in chosen])
        state = curriculum.observe(between(state), attempts_at([pick.task for pick in chosen], step))
    return chosen_keys


@every_member
@each(count=[1, 4, 10, 23])
def test_chooses_as_many_as_asked_from_the_pool(curriculum: Curriculum, count: int) -> None:
    _, chosen = curriculum.select(curriculum.start(), POOL, count, seed=0, step=0)
    assert len(chosen) == count
    assert all(any(pick.task is known for known in POOL) for pick in chosen)


@every_member
def test_same_seed_same_order(curriculum: Curriculum) -> None:
    random.seed(1), np.random.seed(1)
    first = play(curriculum)
    random.seed(2), np.random.seed(2)
    assert play(curriculum) == first


@every_member
def test_resumed_is_uninterrupted(curriculum: Curriculum) -> None:
    """The state goes through JSON between any two calls, and into a curriculum made anew."""
    assert play(curriculum, between=through_json) == play(curriculum)


class Rewriter(ScriptedSampler):
    """A model that writes the same text whatever it reads."""

    async def write(self, prompt: Any, n: int, sampling: Sampling) -> list[str]:
        return ["What is 2+3?"] * n


class Measured(TableProbe):
    """What a curriculum may measure, as functions of the task and of the ids of its prompt."""

    def __init__(self) -> None:
        super().__init__(
            rewards=lambda task: [float(number < 4 - int(task.key[1:]) % 5) for number in range(4)],
            scores=lambda task: int(task.key[1:]) % 7 / 7,
            states=lambda ids: np.cos(np.outer(np.arange(1, len(ids) + 1), [1.0, 2.0, 3.0]) * float(sum(ids))),
        )

    @property
    def samplers(self) -> dict[str, Any]:
        return {role: Rewriter(role) for role in ("policy", "text")}


def looked(curriculum: Curriculum, *, between: Callable[[State], State] = dict) -> tuple[list[list[str]], list[Any]]:
    """Keys of the tasks of each step where it looks before it chooses, and what it measured."""
    state, chosen_keys, probe = curriculum.start(), [], Measured()
    for step in range(6):
        before = json.dumps(pack(state))
        at = {"seed": 0, "step": step}
        first = asyncio.run(curriculum.look(between(state), POOL, probe, 4, **at))
        again = asyncio.run(curriculum.look(state, POOL, Measured(), 4, **at))
        assert json.dumps(pack(first)) == json.dumps(pack(again)), "a look is a function of its arguments"
        assert json.dumps(pack(state)) == before, "and changes none of them"
        state, chosen = curriculum.select(between(first), POOL, 4, **at)
        assert len(chosen) == 4
        chosen_keys.append([pick.task.key for pick in chosen])
        state = curriculum.observe(between(state), attempts_at([pick.task for pick in chosen], step))
    return chosen_keys, probe.asked


@every_member
def test_a_look_repeats_and_is_resumed(curriculum: Curriculum) -> None:
    """Draws of the process do not matter to it, and a state that went through JSON measures and chooses the same."""
    random.seed(1), np.random.seed(1)
    first = looked(curriculum)
    random.seed(2), np.random.seed(2)
    assert looked(curriculum, between=through_json) == first


@pytest.mark.parametrize("curriculum", [pytest.param(Curriculum.find(kind)(), id=kind) for kind in Curriculum.kinds()])
def test_what_looks_measures(curriculum: Curriculum) -> None:
    """Others leave the run alone. `evolved` makes its tasks from the rollouts of the training itself."""
    looks = type(curriculum).look is not Curriculum.look
    assert bool(looked(curriculum)[1]) == (looks and curriculum.kind != "evolved")


class Counted(Sequence[Task]):
    """A pool that counts the tasks that are read of it."""

    def __init__(self, size: int) -> None:
        self.size, self.read = size, 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: Any) -> Any:
        if not 0 <= place < self.size:
            raise IndexError(place)
        self.read += 1
        return Task(key=f"t{place}", prompt="", domain="ab"[place % 2], fields={"difficulty": 0.5, "text": [1, 2]})


@every_member
def test_a_choice_of_many_tasks_reads_the_chosen_ones_only(curriculum: Curriculum) -> None:
    """After the first choice, which may read the pool; and the state stays within 25 bytes for each task of it."""
    pool = Counted(20_000)
    state, chosen = curriculum.select(curriculum.start(), pool, 64, seed=0, step=0)
    state = curriculum.observe(state, attempts_at([pick.task for pick in chosen], 0))
    pool.read = 0
    state, _ = curriculum.select(state, pool, 64, seed=0, step=1)
    assert pool.read <= 2 * 64
    assert len(json.dumps(pack(state))) <= 25 * len(pool) * 4 / 3


@every_member
def test_state_is_changed_by_returning_a_new_one(curriculum: Curriculum) -> None:
    state: Mapping[str, Any] = curriculum.start()
    for step in range(3):
        before = json.dumps(pack(state))
        following, chosen = curriculum.select(state, POOL, 4, seed=0, step=step)
        assert json.dumps(pack(state)) == before
        before = json.dumps(pack(following))
        state = curriculum.observe(following, attempts_at([pick.task for pick in chosen], step))
        assert json.dumps(pack(following)) == before


def in_rows(group: Group) -> Group:
    """The same rollouts, of which the first is an episode of three rows, with the outcome in each of them."""
    first, *others = group.trajectories
    rows = [replace(first, facts=(Row(episode=0, row=row, counts=row == 2),)) for row in range(3)]
    return replace(group, trajectories=(*rows, *others))


@every_member
def test_an_episode_of_three_rows_counts_once(curriculum: Curriculum) -> None:
    """The state, the report, what its model learns, and later choices are those of an episode of one row."""
    chooser = Choosing(
        curriculum=curriculum,
        rollout=Independent(),
        reward=Match(),
        reducer=Tokens(),
        learning=Learning(optimizer=AdamW(lr=1e-4)),
    )
    memories: list[dict[str, Any]] = [{"curriculum": curriculum.start()} for _ in range(2)]
    for index in range(4):
        found = []
        for memory, rows in zip(memories, (False, True), strict=True):
            memory["curriculum"], picks = curriculum.select(memory["curriculum"], POOL, 4, seed=0, step=index)
            groups = attempts_at([pick.task for pick in picks], index)
            step = Step(index=index, total=4)
            targets = chooser.observe(memory, [in_rows(g) for g in groups] if rows else groups, step)
            state = json.dumps(pack(memory["curriculum"]))
            found.append(([pick.task.key for pick in picks], targets, step.record.metrics, state))
        assert found[0] == found[1]


@every_member
def test_a_pool_of_one(curriculum: Curriculum) -> None:
    _, chosen = curriculum.select(curriculum.start(), POOL[:1], 3, seed=0, step=0)
    assert [pick.task.key for pick in chosen] == ["t0"] * 3


def through_json(state: State) -> State:
    loaded: State = unpack(json.loads(json.dumps(pack(state), allow_nan=False)))
    return loaded
