"""Dialogues of retries, by hand: what is kept, what is the prompt of a turn, and how held-out tasks are answered."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.rollouts.retried import Retried, is_degenerate, vote
from posttrain.types import Completion, Group, Score, Task, Trajectory
from tests.builders import ScriptedSampler, info_of

SUM = Task(key="sum", prompt="2+2=", answer="4")


class Sayer(ScriptedSampler):
    """Writes given texts in order, and keeps the prompts that it wrote after."""

    def __init__(self, *says: str) -> None:
        super().__init__("policy")
        self.says, self.prompts = iter(says), list[str]()

    def bind(self, *key: int | str) -> "Sayer":
        return self

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
        self.prompts.append(self.decode(token_ids))
        made = []
        for text in (next(self.says) for _ in range(n)):
            ids = np.array([*text.encode()], np.int64)
            logp = np.full(len(ids), -1.0, np.float32)
            made.append(Completion(token_ids=ids, logp=logp, stop_reason="stop", version=1, text=text))
        return made


async def score(group: Group) -> Group:
    """1 for 4, 0 for another digit, -1 for none, and a failure for x."""

    def of(t: Trajectory) -> Score:
        if t.completion == "x":
            return Score(value=float("nan"), status="error")
        value = 1.0 if t.completion == "4" else 0.0 if t.completion.isdigit() else -1.0
        return Score(value=value, status="ok" if value == 1 else "wrong")

    return replace(group, trajectories=tuple(t.scored(of(t)) for t in group))


def dialogue(*says: str, **settings: Any) -> tuple[Group, Sayer]:
    sayer = Sayer(*says)
    rollout = Retried(**{"n": 3, "feedback": " no {question}", **settings})
    [group] = asyncio.run(rollout.collect_scored(SUM, {"policy": sayer}, score))
    return group, sayer


def test_the_first_best_answer_of_a_turn_enters_the_history() -> None:
    group, sayer = dialogue("5", "?", "6", "7", "8", "4", "4")
    assert [t.completion for t in group] == ["5", "6", "4"], "one first answer, then the first best of three"
    assert sayer.prompts == ["2+2=", "2+2=5 no 2+2=", "2+2=5 no 2+2=6 no 2+2="]
    assert [t.sample for t in group] == [0, 1, 2] and [t.score.value for t in group if t.score] == [0.0, 0.0, 1.0]
    last = group.trajectories[-1]
    assert [(s.actor, s.trained) for s in last.segments] == [("prompt", False), ("policy", True)]
    assert last.token_ids.tolist() == [1, *b"2+2=5 no 2+2=6 no 2+2=4"], "ids are never made again"


def test_a_dialogue_ends_when_it_is_solved_and_after_its_turns() -> None:
    assert [t.completion for t in dialogue("4")[0]] == ["4"]
    assert [t.completion for t in dialogue("5", *"678", turns=2)[0]] == ["5", "6"]
    assert [t.completion for t in dialogue("5", "x", "x", "7", turns=2)[0]] == ["5", "7"], "a failed score is below all"


def test_dialogues_grow_from_two_turns_to_all() -> None:
    assert [Retried(turns=5).at(p).turns for p in (0.0, 0.24, 0.25, 0.5, 0.75, 1.0)] == [2, 2, 3, 4, 5, 5]
    assert Retried(turns=1).at(0.0).turns == 1


def test_degenerate_answers_are_sampled_again_three_times_at_most() -> None:
    assert is_degenerate("a" * 301) and is_degenerate("a " * 151)
    assert not is_degenerate("a" * 300) and not is_degenerate("a " * 150) and not is_degenerate("")
    broken = "a" * 301
    assert [t.completion for t in dialogue(broken, broken, "4")[0]] == ["4"]
    assert [len(t.completion) for t in dialogue(*[broken] * 4, turns=1)[0]] == [301]


@pytest.mark.parametrize(
    ("answers", "turn"),
    [(["1", "2", "2"], 1), (["1", "2"], 0), (["", "", "3"], 2), (["", ""], 1), (["2", "1", "1", "2"], 0)],
)
def test_the_vote_is_the_first_modal_answer(answers: Sequence[str], turn: int) -> None:
    assert vote(answers) == turn


def held_out(*says: str, **settings: Any) -> tuple[Trajectory, Sayer]:
    sayer = Sayer(*says)
    rollout = Retried(feedback=" no {question}", turns=3, **settings).held_out(1, Retried().sampling)
    [group] = asyncio.run(rollout.collect(SUM, {"policy": sayer}))
    return group.trajectories[0], sayer


def test_held_out_tasks_have_no_oracle() -> None:
    """The right answer is called wrong too, and the last one counts, or the most frequent one."""
    last, sayer = held_out("4", "4", "5")
    assert last.completion == "5" and len(sayer.prompts) == 3 and " no " in sayer.prompts[1]
    assert info_of(last)["tries"] == ["4", "4", "5"]
    voted, _ = held_out("4", "4", "5", result="vote")
    assert voted.completion == "4" and voted.segments[0].turn == 0


def test_a_teachers_answers_are_demonstrations() -> None:
    teacher, policy = Sayer("4"), Sayer("5")
    rollout = Retried(n=1, feedback=" no", improver_role="teacher")
    assert rollout.roles == {"teacher"} and not Retried().roles
    [group] = asyncio.run(rollout.collect_scored(SUM, {"policy": policy, "teacher": teacher}, score))
    own, taught = group.trajectories
    assert teacher.prompts == ["2+2=5 no"] and own.completion == "5"
    assert taught.segments[-1].actor == "demonstration" and taught.segments[-1].trained
    assert taught.token_ids.tolist() == [1, *b"2+2=5 no4", 0]


def test_a_full_context_ends_the_dialogue() -> None:
    sayer = Sayer("5", "6", "7", "8")
    sayer.context = 9
    [group] = asyncio.run(Retried(n=1, feedback="no").collect_scored(SUM, {"policy": sayer}, score))
    assert [t.completion for t in group] == ["5", "6"], "5 ids, then 8, then 11"
