"""Rollouts of one task that see more or fewer criteria of its rubric, and fewer as training goes on.

Source: RuscaRL, arXiv:2508.16949, and its released code (IANNXANG/RuscaRL at 18e2b012, vllm_rollout_spmd.py). Rollout i
of G sees the share (G - 1 - i) / (G - 1) of the criteria, times a sigmoid of the progress x of the stage:

    lambda = 1 / (1 + exp(steepness (x - center)))          ratio_i = lambda (G - 1 - i) / (G - 1)

A ratio of 1 shows all criteria in their order; below it round(K ratio) of the K criteria, half to even, drawn without
replacement; none leaves the prompt bare. A single rollout has the ratio 1. With a steepness of 125 lambda is 1 up to
15 % of the stage and below .01 from 25 % on, in practice a switch.

Criteria are rows of the field ``criteria`` with ``criterion`` (a text) and ``points``; those with positive points are
to be covered, those with negative ones to be avoided. Rollouts are learned from under the bare prompt (`trained`). What
was sampled under another prompt has other probabilities there: a stage with ``old_logp: recomputed`` takes them from
the policy before the update, so that the ratio is 1 at first, as in the release, which corrects nothing; with
``sampled`` the ratio is the true one. Held-out answers have no scaffold.

Differs: the draw is seeded. In a chat the criteria are in the last message, not in a system prompt. A completion that
does not fit after the bare prompt is cut there.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveInt
from pydantic_core import PydanticCustomError

from posttrain.component import frozen, nearest
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import prompt_segment, sampled_segment, sampler_of
from posttrain.datasets.templates import check_places, places, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Fact, Group, Task, Trajectory

SCAFFOLD = (
    "{question}\n\nA good answer covers the following:\n{cover}\n\nIt avoids the following:\n{avoid}\n\n"
    "Do not mention these lists in the answer."
)
"""The prompt with criteria."""


def _check_request(request: str) -> str:
    """Refuse a prompt that lacks the question or what is to be covered. Raises a validation error."""
    if missing := [f"{{{name}}}" for name in ("question", "cover") if name not in places(request)]:
        context = {"missing": " and ".join(missing)}
        raise PydanticCustomError("request", "a prompt with criteria needs {missing}", context)
    return check_places(request, ("question", "cover", "avoid"))


@dataclass(frozen=True, kw_only=True)
class Scaffold(Fact):
    """How many criteria were in the prompt that a rollout was sampled from."""

    criteria_shown: int


@frozen
class Scaffolded(Rollout):
    """Samples each rollout of a group with its own share of the criteria in the prompt."""

    n: PositiveInt = 8
    """Rollouts per task."""
    center: float = 0.2
    """x0: share of the stage at which half of the scaffold is left (the run; 0.3 is the release's default)."""
    steepness: NonNegativeFloat = 125.0
    """How fast it decays (the run; 10 is the release's default)."""
    strength: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """lambda, where it is fixed; None follows the progress."""
    within: Literal["linear", "all", "none"] = "linear"
    """Shares within a group before the decay: from all to none, all alike, or none."""
    trained: Literal["bare", "shown"] = "bare"
    """The prompt that rollouts are learned from under."""
    request: Annotated[str, AfterValidator(_check_request)] = SCAFFOLD
    """The prompt with criteria. Placeholders: question, cover, avoid. In a chat it replaces the last message."""
    sampling: Sampling = Sampling()
    """How completions are sampled."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def group_size(self) -> int | None:
        """The setting `n`."""
        return self.n

    @property
    def follows_progress(self) -> bool:
        """True unless the strength is fixed."""
        return self.strength is None

    def at(self, progress: float) -> "Scaffolded":
        """With the strength of the scaffold at this progress."""
        return self if self.strength is not None else replace(self, strength=self.decayed(progress))

    def decayed(self, progress: float) -> float:
        """Lambda at this progress."""
        power = self.steepness * (progress - self.center)
        return 0.0 if power > 700.0 else 1.0 / (1.0 + math.exp(power))

    def ratio(self, i: int) -> float:
        """Share of the criteria that rollout i sees."""
        strength = 1.0 if self.strength is None else self.strength
        if self.within != "linear" or self.n == 1:
            return 0.0 if self.within == "none" else (1.0 if self.n == 1 else strength)
        return strength * (self.n - 1 - i) / (self.n - 1)

    def check(self, tasks: Sequence[Task]) -> None:
        """Some task must have criteria, and those that are there must be readable."""
        found = [bool(criteria_of(task)) for task in tasks]
        if tasks and not any(found):
            task = tasks[0]
            raise UserError(
                f"none of the {len(tasks)} tasks has a field 'criteria'; {nearest('criteria', task.fields)}; give each "
                'row a list of {"criterion": TEXT, "points": NUMBER}'
            )

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n`."""
        sampler = sampler_of("policy", samplers)
        made = (self._rollout(task, sampler.bind("scaffold", i), i) for i in range(self.n))
        return [Group(key=task.key, trajectories=tuple(await asyncio.gather(*made)))]

    async def _rollout(self, task: Task, sampler: Sampler, i: int) -> Trajectory:
        bare = prompt_segment(task, sampler)
        criteria = shown_of(criteria_of(task), self.ratio(i), sampler)
        prompt = bare
        if criteria:
            values = {name: "\n".join(texts) for name, texts in _listed(criteria).items()}
            prompt = prompt_segment(replace(task, prompt=prompt_from(task, self.request, values)), sampler)
            if len(prompt) >= sampler.context:
                criteria, prompt = [], bare
        [completion] = await sampler.sample(prompt.token_ids, 1, self.sampling, prompt.vectors)
        return Trajectory(
            task=task,
            segments=(bare if self.trained == "bare" else prompt, sampled_segment(completion, "policy")),
            stop_reason=completion.stop_reason,
            sample=i,
            facts=(Scaffold(criteria_shown=len(criteria)),),
        )


def criteria_of(task: Task) -> list[tuple[str, float]]:
    """Text and points of each criterion; empty without any. Raises `UserError` for what is no list of criteria."""
    found: Any = task.fields.get("criteria", [])
    rows = found if isinstance(found, Sequence) and not isinstance(found, str) else [found]
    criteria = []
    for row in rows:
        text, points = (row.get("criterion"), row.get("points")) if isinstance(row, Mapping) else (None, None)
        if (
            not isinstance(text, str)
            or not text.strip()
            or isinstance(points, bool)
            or not isinstance(points, int | float)
        ):
            raise UserError(
                f'task {task.key}: a criterion is {{"criterion": TEXT, "points": NUMBER}}, and this one is {row!r}; '
                "give each criterion its text and its points, negative ones for what is to be avoided"
            )
        criteria.append((text, float(points)))
    return criteria


def shown_of(criteria: list[tuple[str, float]], ratio: float, sampler: Sampler) -> list[tuple[str, float]]:
    """All criteria in their order, or as many as the ratio rounds to (half to even), in a drawn order."""
    if ratio >= 1.0:
        return criteria
    left, drawn = list(criteria), list[tuple[str, float]]()
    for _ in range(round(len(criteria) * ratio)):
        drawn.append(left.pop(int(sampler.uniform() * len(left))))
    return drawn


def _listed(criteria: Sequence[tuple[str, float]]) -> dict[str, list[str]]:
    """What is to be covered, and what to be avoided."""
    cover = [text for text, points in criteria if points > 0]
    return {"cover": cover or ["-"], "avoid": [text for text, points in criteria if points <= 0] or ["-"]}
