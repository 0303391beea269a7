"""Chains of episodes with notes, by hand."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.environments.try_again import TryAgain
from posttrain.components.rollouts import Row
from posttrain.components.rollouts.reflected import Notes, Reflected
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Completion, Group, Task, Trajectory
from tests.builders import ScriptedSampler, score

BALL = Task(key="ball", prompt="Box:", answer="c")
WORLD = TryAgain(tries=2, feedback="No. ")


class Guesser(ScriptedSampler):
    """Names given boxes in order, and keeps the prompts."""

    def __init__(self, says: Sequence[str], context: int = 4096) -> None:
        super().__init__("policy")
        self.says, self.prompts, self.context = iter(says), list[str](), context

    def bind(self, *key: int | str) -> "Guesser":
        return self

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
        self.prompts.append(self.decode(token_ids))
        text = next(self.says)
        ids = np.array([*text.encode()], np.int64)
        return [Completion(token_ids=ids, logp=-np.ones(len(ids)), stop_reason="stop", version=1, text=text)]


def chain(says: Sequence[str], context: int = 4096, **settings: Any) -> tuple[Sequence[Trajectory], Guesser]:
    async def scorer(group: Group) -> Group:
        return Group(key=group.key, trajectories=tuple(t.scored(score(float(t.completion == "c"))) for t in group))

    sampler = Guesser(says, context)
    notes = Notes(**{"note": "not {turns}; ", **settings})
    rollout = Reflected(environment=WORLD, n=1, max_turns=2, notes=notes)
    [group] = asyncio.run(rollout.collect_scored(BALL, {"policy": sampler}, scorer))
    return group.trajectories, sampler


def test_a_note_on_each_failed_episode_stands_before_the_next_one() -> None:
    found, sampler = chain(["a", "b", "d", "e", "c"])
    assert sampler.prompts == [
        "box:",
        "box:ano. ",
        "not ab; box:",
        "not ab; box:dno. ",
        "not ab; not de; box:",
    ]
    assert [t.fact(Row) for t in found] == [Row(episode=0, row=i) for i in range(3)], "it ends with the first success"
    assert [t.sample for t in found] == [0, 1, 2] and all(t.task is BALL for t in found)
    assert found[2].segments[0].text == "not ab; not de; Box:" and not found[2].segments[0].trained


def test_the_last_notes_are_kept_and_none_makes_episodes_independent() -> None:
    says = ["a", "b", "d", "e", "f", "a"]
    assert chain(says, kept=1)[1].prompts[4] == "not de; box:"
    assert chain(says, kept=0)[1].prompts[::2] == ["box:"] * 3
    assert chain(says, context=30)[1].prompts[4] == "not de; box:", "half of the context is left for the episode"
    assert chain(says, context=20)[1].prompts[4] == "box:"


def test_the_model_may_write_its_notes() -> None:
    found, sampler = chain(
        ["a", "b", "try c", "c"], request=" {turns} failed, since {explanation}. Why?", note="note: {note}\n"
    )
    assert sampler.prompts[2].startswith("box: ab failed, since incorrect after 2 answers")
    assert sampler.prompts[3] == "note: try c\nbox:" and [t.completion for t in found] == ["aNo. b", "c"]


def test_held_out_tasks_count_the_last_episode() -> None:
    rollout = Reflected(environment=WORLD, tries=2, max_turns=2).held_out(1, Sampling(max_tokens=2))
    [group] = asyncio.run(rollout.collect(BALL, {"policy": Guesser(["a", "b", "c"])}))
    [last] = group.trajectories
    assert last.completion == "c" and last.fact(Row) == Row(episode=0, row=1)


def test_tasks_must_be_those_of_the_environment() -> None:
    with pytest.raises(UserError, match="answer"):
        Reflected(environment=WORLD).check([Task(key="none", prompt="Box:", answer=None)])


@pytest.mark.parametrize("settings", [{"note": "{note}"}, {"request": "why?"}, {"note": "{turn}"}])
def test_wrong_places_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Notes(**settings)
