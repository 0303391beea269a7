"""A group of rollouts that all fail is sampled again with more and more of the solution in the prompt.

Source: GHPO, Liu et al. 2025, arXiv:2507.10628, and its released code (hkgc-1/GHPO at af0a7dd, ghpo_trainer.py). Where
no rollout of a task is correct, the whole group is sampled anew from the task's prompt with the first part of its
solution, as many of its characters as the first share of the `ladder` is; where that fails too, with the next share.
The first group with a correct rollout is kept, or that of the last share whatever it is, all within one step. What is
correct is the status of the reward, so that a reward for the format does not count. Discarded groups are sampled, and
count, and are not learned from.

The rollouts are learned from under the prompt that they were sampled from. In the release a group that an early share
has solved gets the bare prompt in front of its hinted completions as soon as another one needs a later share; here
every group has its own. Each visit of a task begins without a hint.

The other two rules are controls: ``always`` gives the first share to every task at once; with an empty ladder the
rollouts are independent.

Differs: a group of which nothing could be scored is kept, since nothing is known of it. A hint whose prompt leaves no
room in the context ends the ladder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt
from pydantic_core import PydanticCustomError

from posttrain.component import frozen, nearest
from posttrain.components.rollouts import Hint, Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.datasets.templates import check_places, places, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Group, Segment, Task

HINT = "{question}\nBeginning of the answer: {hint}"
"""The prompt with a hint."""
Share = Annotated[float, Field(gt=0.0, lt=1.0)]


def _check_request(request: str) -> str:
    """Refuse a prompt that lacks the question or the hint. Raises a validation error."""
    if missing := [f"{{{name}}}" for name in ("question", "hint") if name not in places(request)]:
        raise PydanticCustomError("request", "a prompt with a hint needs {missing}", {"missing": " and ".join(missing)})
    return check_places(request, ("question", "hint"))


def _check_ladder(ladder: tuple[float, ...]) -> tuple[float, ...]:
    """Refuse shares that do not rise. Raises a validation error."""
    if list(ladder) != sorted(set(ladder)):
        raise PydanticCustomError("ladder", "the shares must rise, each once")
    return ladder


@frozen
class Hinted(Rollout):
    """Samples `n` completions, and again with hints where all of them fail."""

    n: PositiveInt = 8
    """Completions of a group."""
    ladder: Annotated[tuple[Share, ...], AfterValidator(_check_ladder)] = (0.25, 0.5, 0.75)
    """Shares of the characters of the solution, rounded; a hint is never the whole of it."""
    when: Literal["unsolved", "always"] = "unsolved"
    """Which groups get a hint: those without a correct rollout, or all, from the first share on."""
    start: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the stage's steps before which there are no hints (20 steps in the paper; 0 in the released recipe)."""
    column: str | None = None
    """Field of a task with its solution; None takes its first demonstration."""
    request: Annotated[str, AfterValidator(_check_request)] = HINT
    """The prompt with a hint. Placeholders: question, hint. In a chat it replaces the last message."""
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

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have a solution of two characters or more."""
        for task in tasks:
            solution = self.solution(task)
            if len(solution) == 1:
                raise UserError(
                    f"task {task.key}: its solution {solution!r} has one character, so that a hint would be the whole "
                    "of it; give the row a longer solution, or leave it out"
                )
            if not solution:
                where = f"the column '{self.column}'" if self.column else "a demonstration"
                hint = f"; {nearest(self.column, task.fields)}" if self.column else ""
                raise UserError(
                    f"task {task.key}: the hinted rollout takes its hints from {where}, which this task lacks{hint}; "
                    "give each row its solution, or leave the row out"
                )

    @property
    def follows_progress(self) -> bool:
        """True where hints begin after the start of the stage."""
        return self.start > 0.0 and bool(self.ladder)

    def at(self, progress: float) -> "Hinted":
        """Without hints in the first part of the stage."""
        return replace(self, ladder=()) if progress < self.start else self

    def solution(self, task: Task) -> str:
        """The text that hints are of; empty where there is none."""
        if self.column is None:
            return task.demonstrations[0] if task.demonstrations else ""
        found = task.fields.get(self.column)
        return found if isinstance(found, str) else ""

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group: the last that was sampled."""
        sampler = sampler_of("policy", samplers)
        always = self.when == "always" and bool(self.ladder)
        group = None if always else await self._group(task, prompt_segment(task, sampler), sampler, scorer)
        for rung, share in enumerate(self.ladder):
            if group is not None and not _all_wrong(group):
                break
            shown, has_answer = self._shown(task, share)
            prompt = prompt_segment(shown, sampler)
            if len(prompt) >= sampler.context:
                break
            fact = Hint(hint_share=share, hint_has_answer=has_answer)
            group = await self._group(task, prompt, sampler.bind("hint", rung), scorer, fact)
            if always:
                break
        if group is None:
            group = await self._group(task, prompt_segment(task, sampler), sampler, scorer)
        return [group]

    def _shown(self, task: Task, share: float) -> tuple[Task, bool]:
        """The task with a hint in its prompt, and whether its answer is in the hint."""
        solution = self.solution(task)
        hint = solution[: min(round(share * len(solution)), len(solution) - 1)]
        answer = (task.answer or "").strip()
        shown = replace(task, prompt=prompt_from(task, self.request, {"hint": hint}))
        return shown, bool(answer) and answer in hint

    async def _group(self, task: Task, prompt: Segment, sampler: Sampler, scorer: Scorer, *facts: Hint) -> Group:
        """A scored group of completions of a prompt."""
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        found = answers(task, prompt, completions, "policy")
        return await scorer(
            Group(key=task.key, trajectories=tuple(replace(t, facts=(*t.facts, *facts)) for t in found))
        )


def _all_wrong(group: Group) -> bool:
    """Whether some rollouts could be scored, and none of them is correct."""
    scored = [t for t in group if t.score is not None and t.score.status != "error"]
    return bool(scored) and not any(t.solved for t in scored)
