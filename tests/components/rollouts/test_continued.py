"""Episodes that began in an earlier process: played again and compared, answered from the record, or started anew."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from posttrain.components.environments import (
    Draw,
    Environment,
    EpisodeChanged,
    Instance,
    Observation,
    Outcome,
    Resumes,
)
from posttrain.components.environments.corridor import Corridor
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._recorded import Record
from posttrain.components.rollouts.by_values import ByValues
from posttrain.components.rollouts.hint_infer import HintInfer
from posttrain.components.rollouts.step_search import StepSearch
from posttrain.components.rollouts.summarized import Summarized
from posttrain.components.rollouts.surprise import Surprise
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling
from posttrain.stages.rl.pieces import Gate, PiecedSampler, Progress, plain_answers, read_answers
from posttrain.types import Group, Task, Trajectory
from tests.builders import ScriptedSampler

TASK = Task(key="a", prompt="Go.")
PLAYED = list[tuple[int, str]]


class Script(Instance):
    """Answers with a number that all actions so far give; keeps the actions that it was asked for."""

    def __init__(self, rules: "Scripted") -> None:
        self.rules, self.number = rules, 0

    def begin(self) -> Observation:
        return Observation(text="0\n", legal=("a", "b"))

    async def step(self, action: str) -> Outcome:
        turn = self.number
        self.number += 1
        self.rules.asked.append((turn, action))
        text = f"{turn} {len(action)} {self.rules.noise if turn == 1 else ''}\n"
        return Outcome(observation=Observation(text=text, legal=("a", "b")), reward=0.5, done=self.number == 3)


class Scripted(Environment):
    asked: PLAYED
    noise = ""
    way: Resumes = "replay"

    @property
    def resumes(self) -> Resumes:
        return self.way

    def instance(self, task: Task, draw: Draw) -> Instance:
        return Script(self)


def scripted(rollout: Rollout, way: Resumes = "replay") -> tuple[Rollout, Scripted]:
    environment = Scripted()
    for name, value in {"asked": [], "noise": "", "way": way}.items():
        object.__setattr__(environment, name, value)
    object.__setattr__(rollout, "environment", environment)
    return rollout, environment


async def score(group: Group) -> Group:
    from posttrain.types import Score

    return replace(group, trajectories=tuple(t.scored(Score(value=1.0, status="ok")) for t in group))


def sampled(rollout: Rollout, progress: Progress, gate: Gate) -> list[Trajectory]:
    roles = ("policy", "control")
    bound: Any = {role: PiecedSampler(ScriptedSampler(role), role, progress, gate, None) for role in roles}
    groups = asyncio.run(rollout.collect_scored(TASK, bound, score))
    return [t for group in groups for t in group]


def again(progress: Progress) -> Progress:
    """After a checkpoint."""
    return Progress(number=0, answers=read_answers(plain_answers(progress)))


def turns() -> Turns:
    return Turns(environment=Corridor(), n=2, max_turns=4, sampling=Sampling(max_tokens=6))


KINDS: dict[str, Callable[[], Rollout]] = {
    "turns": turns,
    "by_values": lambda: ByValues(environment=Corridor(), n=2, max_turns=4, sampling=Sampling(max_tokens=6)),
    "hint_infer": lambda: HintInfer(environment=Corridor(), n=2, max_turns=4, sampling=Sampling(max_tokens=6)),
    "step_search": lambda: StepSearch(environment=Corridor(), n=2, max_turns=4, sampling=Sampling(max_tokens=6)),
    "summarized": lambda: Summarized(environment=Corridor(), n=2, max_turns=4, sampling=Sampling(max_tokens=6)),
    "surprise": lambda: Surprise(environment=Corridor(), n=2, sampling=Sampling(max_tokens=6)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_is_played_again_and_is_the_same(kind: str) -> None:
    rollout, environment = scripted(KINDS[kind]())
    progress, gate = Progress(number=0), Gate()
    first = sampled(rollout, progress, gate)
    asked = list(environment.asked)
    assert asked
    second = sampled(rollout, again(progress), gate)
    assert [t.segments for t in map(plain, second)] == [t.segments for t in map(plain, first)]
    assert environment.asked == [*asked, *asked]
    assert gate.anew == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_that_differs_starts_anew(kind: str) -> None:
    """It is counted, and nothing of the first one is left: neither its turns nor its answers."""
    rollout, environment = scripted(KINDS[kind]())
    progress, gate = Progress(number=0), Gate()
    sampled(rollout, progress, gate)
    object.__setattr__(environment, "noise", "another")
    continued = again(progress)
    second = sampled(rollout, continued, gate)
    assert gate.anew >= 1
    fresh = Progress(number=0)
    assert [plain(t).segments for t in sampled(rollout, fresh, Gate())] == [plain(t).segments for t in second]
    assert continued.answers.keys() == fresh.answers.keys()


def cut_off(progress: Progress) -> None:
    """Leave of each episode what was answered until the first turn was over."""
    for name, answer in progress.answers.items():
        if name.endswith("seen"):
            del answer["seen"][2:]


def test_answers_of_the_record_are_not_requested_again() -> None:
    rollout, environment = scripted(turns(), "record")
    progress, gate = Progress(number=0), Gate()
    first = sampled(rollout, progress, gate)
    asked = list(environment.asked)
    kept = again(progress)
    cut_off(kept)
    second = sampled(rollout, kept, gate)
    assert [[s.text for s in t.segments[:3]] for t in second] == [[s.text for s in t.segments[:3]] for t in first]
    new = environment.asked[len(asked) :]
    firsts = {t.segments[1].text for t in first}
    assert len(new) == 6 and not firsts & {action for _, action in new}, "the first turns are not asked for again"


def test_what_cannot_go_on_starts_anew() -> None:
    rollout, environment = scripted(turns(), "anew")
    progress, gate = Progress(number=0), Gate()
    first = sampled(rollout, progress, gate)
    assert gate.anew == 0
    asked = list(environment.asked)
    assert [plain(t) for t in sampled(rollout, again(progress), gate)] == [plain(t) for t in first]
    assert gate.anew == 0 and environment.asked == asked, "episodes that ended are in the record"
    kept = again(progress)
    cut_off(kept)
    second = sampled(rollout, kept, gate)
    assert gate.anew == 2
    assert [t.token_ids.tolist() for t in second] == [t.token_ids.tolist() for t in first]


def test_the_first_difference_is_found() -> None:
    _, environment = scripted(turns())
    record: list[Any] = []

    async def play(noise: str) -> None:
        object.__setattr__(environment, "noise", noise)
        async with environment.open(TASK, lambda: 0.5, Record(record, str)) as instance:
            instance.begin()
            for _ in range(3):
                await instance.step("a")

    asyncio.run(play(""))
    assert len(record) == 4
    asyncio.run(play(""))
    with pytest.raises(EpisodeChanged, match="answer 2 of the environment"):
        asyncio.run(play("x"))
    assert len(record) == 4


def plain(trajectory: Trajectory) -> Trajectory:
    """With arrays that compare."""
    segments: Any = tuple((s.actor, s.token_ids.tolist(), s.text, s.trained, s.reward) for s in trajectory.segments)
    return replace(trajectory, segments=segments)
