"""A writer gives hints and a solver answers with them; they are trained in alternating phases, each against the other.

In a phase of the writer, `count` hints are written for a task, and a hint's reward is the mean score of `n` answers
with it. It counts as correct if that is above the mean of `n` answers without any. The reward of a hint that contains
the answer is 0: the solver answers after the hint alone, without the problem, and none of `leaks` answers may be
correct. The hints of a task are a group.

In a phase of the solver, one hint is written for a task and `n` answers with it are a group. With the probability
`bare.share` the task is put without a hint, and then the reward of every answer is 0: its advantage is 0 too, so that
only a KL to the reference acts, and the solver gains nothing but by hints.

Source: RLAD, arXiv:2510.02263, its rewards as quoted by a note; the numbers of hints and answers, the share of bare
prompts and how answers are grouped are not published. 16 answers per hint for leaks are.

Differs: phases are equal parts of the stage, the writer's first. A hint that contains the answer is left out in the
paper; here it is the worse one of a pair. A hint of which no answer could be scored is left out.

Held-out tasks are answered by the solver with a hint of the writer, one for each answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.datasets.templates import check_places, fill, places, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.types import Fact, Group, Message, Score, Segment, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class HintGiven(Fact):
    """The hint under which an answer was sampled."""

    hint: str
    """Empty for a bare prompt."""


@frozen
class Hints:
    """How hints are written and checked."""

    count: Annotated[int, Field(ge=1, le=1024)] = 4
    """m: hints of a task in a phase of the writer."""
    request: str = "{question}\nHint:"
    """Prompt of the writer, with ``{question}``."""
    shown: str = "{question}\nHint:{hint}\nAnswer:"
    """Prompt of the solver, with ``{question}`` and ``{hint}``."""
    alone: str = "Hint:{hint}\nAnswer:"
    """Prompt of the solver without the problem, with ``{hint}``."""
    leaks: Annotated[int, Field(ge=0, le=1000)] = 16
    """Answers after the hint alone, none of which may be correct; 0 does not check."""
    sampling: Sampling = Sampling(max_tokens=64)
    """How hints are sampled."""


@frozen
class Bare:
    """Prompts of the solver without a hint."""

    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.25
    """Share of its tasks."""
    zeroed: bool = True
    """Whether answers to them are rewarded with 0; False gives them their score."""


@frozen
class Abstracted(Rollout):
    """Samples hints, or answers with hints."""

    n: PositiveInt = 8
    """Answers with a hint."""
    hints: Hints = Hints()
    """How hints are written and checked."""
    bare: Bare = Bare()
    """Prompts without a hint."""
    phases: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Parts of the stage, the writer's first."""
    phase: Literal["writer", "solver"] = "writer"
    """Who is trained now; the stage decides by its progress."""
    sampling: Sampling = Sampling()
    """How answers are sampled."""
    role: str = "policy"
    """The solver."""
    writer_role: str = "writer"
    """Who writes hints."""

    @field_validator("hints")
    @classmethod
    def check_hints(cls, hints: Hints) -> Hints:
        """Refuse prompts without question or hint."""
        for text, needed in (
            (hints.request, {"question"}),
            (hints.shown, {"question", "hint"}),
            (hints.alone, {"hint"}),
        ):
            check_places(text, ("question", "hint"))
            if not needed <= places(text):
                names = " and ".join(f"{{{name}}}" for name in sorted(needed))
                raise PydanticCustomError("place", "'{text}' must show {names}", {"text": text, "names": names})
        return hints

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def roles(self) -> frozenset[str]:
        """The writer."""
        return frozenset({self.writer_role})

    @property
    def helpers(self) -> frozenset[str]:
        """The writer."""
        return self.roles

    @property
    def follows_progress(self) -> bool:
        """Phases alternate over the stage."""
        return True

    def at(self, progress: float) -> "Abstracted":
        """The phase at this part of the stage."""
        number = min(int(progress * self.phases), self.phases - 1)
        return replace(self, phase="solver" if number % 2 else "writer")

    def held_out(self, n: int, sampling: Sampling) -> "Abstracted":
        """`n` answers, each with a hint of its own that is sampled at the same temperature."""
        hints = replace(self.hints, sampling=replace(self.hints.sampling, temperature=sampling.temperature))
        return replace(self, n=n, sampling=sampling, hints=hints)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group: `n` hints, and an answer with each."""
        solver, found = sampler_of(self.role, samplers), []
        for i, hint in enumerate(await self._written(task, samplers, self.n)):
            [answer] = await self._answers(task, solver.bind("held_out", i), hint.completion, 1)
            found.append(replace(answer, sample=i))
        return [Group(key=task.key, trajectories=tuple(found))]

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group: scored hints, or scored answers."""
        solver = sampler_of(self.role, samplers)
        if self.phase == "writer":
            written = await self._written(task, samplers, self.hints.count)
            bare = _mean(await scorer(await self._answers(task, solver.bind("bare"), "")))
            found = [await self._valued(task, solver.bind("hint", i), h, bare, scorer) for i, h in enumerate(written)]
            kept = tuple(hint for hint in found if hint is not None)
            return [Group(key=task.key, trajectories=kept)] if kept else []
        if self.bare.share and solver.uniform() < self.bare.share:
            group = await scorer(await self._answers(task, solver, ""))
            return [_zeroed(group) if self.bare.zeroed else group]
        [hint] = await self._written(task, samplers, 1)
        return [await scorer(await self._answers(task, solver, hint.completion))]

    async def _written(self, task: Task, samplers: Mapping[str, Sampler], count: int) -> Sequence[Trajectory]:
        """Hints as rollouts of the writer."""
        writer = sampler_of(self.writer_role, samplers)
        prompt = _segment(_prompt(task, self.hints.request, ""), writer)
        completions = await writer.sample(prompt.token_ids, count, self.hints.sampling)
        return answers(task, prompt, completions, self.writer_role)

    async def _answers(self, task: Task, solver: Sampler, hint: str, n: int | None = None) -> Group:
        """Answers with a hint, or with none."""
        prompt = _segment(_prompt(task, self.hints.shown, hint), solver) if hint else prompt_segment(task, solver)
        completions = await solver.sample(prompt.token_ids, n or self.n, self.sampling, prompt.vectors)
        found = answers(task, prompt, completions, self.role)
        return Group(
            key=task.key, trajectories=tuple(replace(t, facts=(*t.facts, HintGiven(hint=hint))) for t in found)
        )

    async def _valued(
        self, task: Task, solver: Sampler, hint: Trajectory, bare: float | None, scorer: Scorer
    ) -> Trajectory | None:
        """A hint with the mean score of answers with it, or 0 if it contains the answer; None if it has no score."""
        text = hint.completion
        if self.hints.leaks:
            alone = _segment(fill(self.hints.alone, {"hint": text}), solver)
            made = await solver.bind("leak").sample(alone.token_ids, self.hints.leaks, self.sampling)
            checked = await scorer(Group(key=task.key, trajectories=answers(task, alone, made, self.role)))
            found = sum(t.solved for t in checked)
            if found:
                why = f"the hint alone leads to the answer in {found} of {len(checked)} tries"
                return hint.scored(Score(value=0.0, status="wrong", explanation=why, parts=_parts(checked)))
        answered = await scorer(await self._answers(task, solver.bind("value"), text))
        value = _mean(answered)
        if value is None:
            return None
        better = bare is not None and value > bare
        why = f"mean of answers with it {value:.3f}, without a hint {bare if bare is None else round(bare, 3)}"
        return hint.scored(
            Score(value=value, status="ok" if better else "wrong", explanation=why, parts=_parts(answered))
        )


def _prompt(task: Task, template: str, hint: str) -> str | tuple[Message, ...]:
    return prompt_from(task, template, {"hint": hint})


def _segment(prompt: Any, sampler: Sampler) -> Segment:
    """A prompt that is not the task's own."""
    ids = sampler.encode(prompt)
    return Segment(actor="prompt", token_ids=ids, text=prompt if isinstance(prompt, str) else sampler.decode(ids))


def _mean(group: Group) -> float | None:
    """Mean score of what could be scored; None without any."""
    values = [t.score.value for t in group if t.score is not None and t.score.status != "error"]
    return float(np.mean(values)) if values else None


def _parts(group: Group) -> dict[str, Score]:
    """The first score of answers and the last: two for all, as each part is a metric."""
    scores = [t.score for t in group if t.score is not None]
    return {"first": scores[0], "last": scores[-1]}


def _zeroed(group: Group) -> Group:
    """All rewards 0; what could not be scored stays so, and whether an answer is right is kept."""
    found = [
        t
        if t.score is None or t.score.status == "error"
        else t.scored(replace(t.score, value=0.0, spans=(), parts={"answer": t.score}))
        for t in group
    ]
    return replace(group, trajectories=tuple(found))
