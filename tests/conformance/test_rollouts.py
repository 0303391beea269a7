"""Laws of the rollouts, for every member on arrival, with scripted models in every role."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from posttrain.components.environments import Environment
from posttrain.components.rollouts import Rollout
from posttrain.engines import Sampling
from posttrain.signals import Signal
from posttrain.stages.needs import parts_of
from posttrain.types import Completion, Group, Message, Rated, Score, Segment, Task
from tests.builders import ScriptedSampler, assert_facts_are_plain, score
from tests.conformance._members import each, members

every_member = pytest.mark.parametrize("rollout", members(Rollout))

RATED = (Rated(completion="It is 4.", rating=1.0), Rated(completion="5, I think.", rating=-1.0))
TASKS = [
    Task(key="text", prompt="What is 2 + 2?", answer="4", demonstrations=("It is 4.",), rated=RATED),
    Task(
        key="chat",
        prompt=({"role": "user", "content": "What is 2 + 3?"},),
        answer="5",
        demonstrations=("It is 5.",),
        rated=RATED,
    ),
]


class ScriptedFlow(ScriptedSampler):
    """A flow whose chains, of two steps in the plane, are a function of (key, number); a chain can be one token."""

    steps = 2

    def __init__(self, *key: int | str, version: int = 3, whole: bool = False) -> None:
        super().__init__(*key, version=version)
        self.whole = whole

    def encode(self, prompt: str | Sequence[Message]) -> np.ndarray:
        return np.zeros(1, np.int64)

    def prompt(self, of: Task) -> Segment:
        return Segment(actor="prompt", token_ids=np.zeros(1, np.int64), vectors=np.zeros((1, 6), np.float32))

    def bind(self, *key: int | str) -> "ScriptedFlow":
        bound = ScriptedFlow(*self.key, *key, version=self.version, whole=self.whole)
        bound.completions, bound.signals = self.completions, self.signals
        return bound

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        made = []
        for _ in range(n):
            points = self._rng("points", len(self.completions)).normal(size=(self.steps + 1, 2)).astype(np.float32)
            length = 1 if self.whole else self.steps + 1
            rows = np.zeros((length, 6), np.float32)
            rows[:, : points.size // length] = points.reshape(length, -1)
            made.append(
                Completion(
                    token_ids=np.arange(self.steps + 2 - length, self.steps + 2),
                    logp=-self._rng("logp", len(self.completions)).exponential(size=length).astype(np.float32),
                    stop_reason="stop",
                    version=self.version,
                    text=" ".join(str(number) for number in points[-1]),
                    vectors=rows,
                )
            )
            self.completions.append(made[-1])
        return made


FLOWS = {"control": True, "renoised": False}
"""Rollouts that need a flow, and whether a chain is one token."""


def models(rollout: Rollout, key: str) -> dict[str, ScriptedSampler]:
    """A model in each usual role, and in each role that a field of the rollout names."""
    named = {getattr(rollout, f.name) for f in fields(rollout) if f.name.split("_")[-1] == "role"} | rollout.roles
    usual = {"policy", "reference", "teacher", "guide", "judge", "verifier", "critic", "value"}
    roles = {role: i + 1 for i, role in enumerate(sorted(usual | named))}
    if rollout.kind in FLOWS:
        return {role: ScriptedFlow(role, key, version=v, whole=FLOWS[rollout.kind]) for role, v in roles.items()}
    return {role: ScriptedSampler(role, key, version=version) for role, version in roles.items()}


def holds(completion: Completion, segment: Segment) -> bool:
    """Whether a segment is a piece of a completion: the same ids with the same log-probabilities."""
    assert segment.logp is not None
    pieces = [slice(i, i + len(segment)) for i in range(len(completion.token_ids) - len(segment) + 1)]
    return any(
        np.array_equal(completion.token_ids[p], segment.token_ids) and np.array_equal(completion.logp[p], segment.logp)
        for p in pieces
    )


def content(of: Completion | Segment) -> tuple[object, ...]:
    """Ids and log-probabilities, to look up."""
    assert of.logp is not None
    return (*of.token_ids.tolist(), *of.logp.tolist())


class Grader:
    """Judges by the first token of the answer, and remembers its scores."""

    def __init__(self) -> None:
        self.given: list[Score] = []

    async def __call__(self, group: Group) -> Group:
        scores = [score(float(attempt.token_ids[attempt.trained_positions[0]] % 4 == 0)) for attempt in group]
        self.given += scores
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))


def collect(
    rollout: Rollout, of: Task, samplers: Mapping[str, ScriptedSampler] | None = None, grader: Grader | None = None
) -> list[Group]:
    return asyncio.run(rollout.collect_scored(of, samplers or models(rollout, of.key), grader or Grader()))


@dataclass(frozen=True)
class Collected:
    """What a rollout did for a task."""

    rollout: Rollout
    """Kept, so that no other one has its identity."""
    samplers: Mapping[str, ScriptedSampler]
    grader: Grader
    groups: list[Group]


DONE: dict[tuple[int, str], Collected] = {}
"""By the identity of a rollout and the key of a task."""


def collected(rollout: Rollout, of: Task) -> Collected:
    """What a rollout does for a task, done once for all laws that only read it."""
    found = DONE.get((id(rollout), of.key))
    if found is None:
        samplers, grader = models(rollout, of.key), Grader()
        found = Collected(rollout, samplers, grader, collect(rollout, of, samplers, grader))
        DONE[id(rollout), of.key] = found
    return found


def shown(groups: list[Group]) -> str:
    """Everything that a trajectory holds, for comparison."""
    return repr([(g.key, t.sample, t.stop_reason, [(s.actor, s.token_ids.tolist(), s.text) for s in t.segments])
                 for g in groups for t in g])  # fmt: skip


@every_member
@each(of=TASKS)
def test_every_sampled_token_is_accounted_for(rollout: Rollout, of: Task) -> None:
    """Ids, log-probabilities and version of each sampled segment are those that a model gave, never made again."""
    done = collected(rollout, of)
    samplers, groups = done.samplers, done.groups
    assert groups and all(len(group) for group in groups)
    sampled = [s for g in groups for t in g for s in t.segments if s.actor in samplers]
    assert bool(sampled) == any(sampler.completions for sampler in samplers.values())
    assert sampled or all(t.given for g in groups for t in g), "what is not sampled came with the task"
    whole = {role: {content(c) for c in sampler.completions} for role, sampler in samplers.items()}
    for segment in {id(s): s for s in sampled}.values():  # trajectories of a tree have the same ones
        assert segment.logp is not None and np.isfinite(segment.logp).all()
        completions = samplers[segment.actor].completions
        assert content(segment) in whole[segment.actor] or any(holds(c, segment) for c in completions)
        assert segment.version == samplers[segment.actor].version


@every_member
@each(of=TASKS)
def test_trajectories_are_well_formed(rollout: Rollout, of: Task) -> None:
    groups = collected(rollout, of).groups
    given = {id(s) for s in collected(rollout, of).grader.given}
    scores = [t.score for g in groups for t in g if t.score is not None]
    assert len(scores) == sum(map(len, groups)), "every attempt is judged"
    made_of = [list(s.parts.values()) or [s] for s in scores]
    assert all(id(part) in given for parts in made_of for part in parts), "rollouts sample, rewards judge"
    for group in groups:
        for attempt in group:
            assert attempt.task == of or "policy" not in attempt.learners, "only others have tasks of their own"
            assert attempt.segments[0].actor == "prompt" and len(attempt.segments[0])
            assert attempt.num_trained > 0
            assert attempt.trained_positions[0] > 0, "the first token has nothing before it to learn from"
            assert len(attempt.behavior_logp) == attempt.num_trained
            assert [s.turn for s in attempt.segments] == sorted(s.turn for s in attempt.segments)
            assert_facts_are_plain(attempt)
        samples = [attempt.sample for attempt in group]
        assert len(set(samples)) == len(samples)


@every_member
def test_same_samplers_same_trajectories(rollout: Rollout) -> None:
    first, again = collected(rollout, TASKS[0]).groups, collect(rollout, TASKS[0])
    assert shown(first) == shown(again)
    if not all(t.given for g in first for t in g):
        assert shown(first) != shown(collect(rollout, TASKS[0], models(rollout, "another key")))


@every_member
def test_temperature_can_divide(rollout: Rollout) -> None:
    assert rollout.temperature > 0


@every_member
def test_needs_are_exact(rollout: Rollout) -> None:
    """What samplers are asked for, beside writing, is declared, and what is declared is asked for."""
    declared = {need for _, part in [("", rollout), *parts_of(rollout)] for need in getattr(part, "needs", ())}
    assert told(collected(rollout, TASKS[0]).samplers) == declared


def told(samplers: Mapping[str, ScriptedSampler]) -> set[Signal]:
    """The signals that models were asked for."""
    return {Signal(name, of=role) for role, sampler in samplers.items() for name in sampler.signals}  # type: ignore[arg-type]


HIDDEN = Task(
    key="hidden",
    prompt="What is 2 + 2?",
    answer="qz-answer",
    demonstrations=("It is qz-shown.",),
    fields={"contexts": ["qz-first", "qz-second"], "secret": "qz-secret"},
    rated=RATED,
)
SHOW_ANSWERS = {
    "critiqued": "a critique has the answer; what is learned follows the bare prompt",
    "explained": "the answer is to be explained; what is learned follows the bare prompt",
}
"""Rollouts that show the task's answer on purpose."""


@every_member
def test_hidden_facts_are_read_by_no_other(rollout: Rollout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of a task is in no context; a private context is in that of its agent alone, the answer in none."""
    read: list[tuple[int | str, str]] = []

    def spied(name: str) -> None:
        plain = getattr(ScriptedSampler, name)

        async def spy(self: ScriptedSampler, prompt: object, *more: object, **named: object) -> object:
            text = prompt if isinstance(prompt, str) else repr(prompt)
            read.append((self.key[0], self.decode(prompt) if isinstance(prompt, np.ndarray) else text.lower()))
            return await plain(self, prompt, *more, **named)

        monkeypatch.setattr(ScriptedSampler, name, spy)

    for name in ("sample", "write"):
        spied(name)
    collect(rollout, HIDDEN)
    assert not [text for _, text in read if "qz-secret" in text]
    assert not [text for _, text in read if "qz-first" in text and "qz-second" in text]
    shown = any("qz-answer" in text for _, text in read)
    assert not shown or rollout.kind in SHOW_ANSWERS
    if shown:
        shown_in = [s for g in collect(rollout, HIDDEN) for t in g for s in t.segments]
        assert not [s for s in shown_in if "qz-answer" in s.text.lower()], "none of it is in what is learned from"


@every_member
def test_an_environment_is_the_field_of_that_name(rollout: Rollout) -> None:
    """Prompts of tasks may be empty there."""
    found = [part.name for part in fields(rollout) if isinstance(getattr(rollout, part.name), Environment)]
    assert found == (["environment"] if rollout.in_environment else [])
