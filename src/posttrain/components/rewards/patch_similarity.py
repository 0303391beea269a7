"""How similar a patch is to the true one, as texts.

Source: SWE-RL, arXiv:2502.18449, and the reward of its release (facebookresearch/swe-rl at 5aa10d6). A completion has a
thought between ``<think>`` tags and edit blocks between ``<solution>`` tags (`posttrain.grading.edit_blocks`). Each tag
must be there once, the thought may not be blank, and one block must be found; what an edit searches must begin a line
of the file as it then is, and differ from what replaces it; otherwise the reward is `malformed`. Every occurrence is
replaced. A path without a file is an empty one, which an empty search creates.

    value = mean over the paths of both patches of the ratio of matching characters
            of the two differences (3 lines of context, no header), 0 for a path of one patch

The ratio is that of difflib's SequenceMatcher without its heuristic. If both patches change nothing the value is 1.
It does not always grow with the overlap. `measure` ``exact`` is 1 for the true patch and 0 for others, with the same
form.

A task has the fields ``files`` and ``oracle``, each from path to text: all that the model sees, and what of it is
changed. With `execution` and the field ``calls``, a list of expressions, the part ``results`` is whether all calls
return the same with the files of both (joined in the order of their paths); it is recorded, and decides what is correct
in place of equal texts, and has no reward.

The reward is a poor measure of correctness, as most of a difference is its context: the right line with any content has
most of it.

Differs: ready differences in place of edit blocks are not read. A difference of more than `longest` characters is
not compared and counts as 0; so does a completion whose comparison exceeds `time_limit`. Texts are compared in workers
that can be killed; by cydifflib where it is installed (`pip install 'posttrain[patches]'`), which computes the same ten
times as fast.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Gold, Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.edit_blocks import changes, open_comparison, written_edits
from posttrain.grading.same_results import same_results
from posttrain.grading.workers import Limits as WorkerLimits
from posttrain.grading.workers import Outcome, Runner, inside_worker
from posttrain.sandbox import Limits, Tier, open_pool
from posttrain.types import Group, Score, Task

LONGEST = 32_768
"""Most characters of a completion that is read."""
ON_THE_CLOCK = 30.0
"""Seconds on the clock for a second of processor time."""
MODULE = "posttrain.grading.edit_blocks"
Key = tuple[int, str]
"""The id of a task, and a completion."""


@frozen
class PatchSimilarity(Reward):
    """Rewards patches by their similarity to the true one."""

    measure: Literal["similarity", "exact"] = "similarity"
    """What a patch with the form is rewarded with."""
    malformed: Annotated[float, Field(ge=-100.0, le=0.0)] = -1.0
    """Reward of a completion without the form, or with an edit that cannot be applied."""
    execution: bool = False
    """Whether the patched files are run on the calls of the task."""
    longest: Annotated[int, Field(ge=100, le=100_000)] = 4000
    """Most characters of a difference that is compared; time is at least quadratic in it."""
    time_limit: Annotated[float, Field(gt=0.0, le=600.0)] = 1.0
    """Seconds of processor time for one completion."""
    memory_mib: Annotated[int, Field(ge=64, le=1 << 20)] = 512
    """Memory for one completion."""
    limits: Limits = Limits(cpu_s=1.0)
    """Limits of the calls of one patch."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which patched files may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """Python, where patched files are run."""
        return "python" if self.execution else ""

    def prepare(self) -> None:
        """Open the sandbox if patched files are run. Raises `UserError` without one that is strong enough."""
        if self.execution:
            open_pool(self.weakest)

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without files and a true patch, or calls that are needed."""
        for task in tasks:
            if fault := self._fault(task):
                raise TaskFault(task.key, f"task '{task.key}' {fault}")

    def gold(self, task: Task) -> Gold | None:
        """The edits that make the true patch."""
        if self._fault(task):
            return None
        edits = written_edits(task.fields["files"], task.fields["oracle"])
        return Gold(answer=edits, form="<think>so</think><solution>\n{answer}\n</solution>") if edits else None

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each completion of a task once."""
        keys = [(id(t.task), t.completion[:LONGEST]) for t in group]
        tasks = {id(t.task): t.task for t in group}
        faults = {number: self._fault(task) for number, task in tasks.items()}
        valid = [key for key in dict.fromkeys(keys) if not faults[key[0]]]
        outcomes = await self._compared([self._call(tasks[number], text) for number, text in valid])
        same = await self._same_results(tasks, dict(zip(valid, outcomes, strict=True))) if self.execution else {}
        found = {
            key: self._scored(tasks[key[0]], outcome, same.get(key))
            for key, outcome in zip(valid, outcomes, strict=True)
        }
        scores = [found.get(key) or failure(f"task '{tasks[key[0]].key}' {faults[key[0]]}") for key in keys]
        return [_with_cut(score, trajectory.completion) for score, trajectory in zip(scores, group, strict=True)]

    async def _compared(self, calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        if not inside_worker():
            return await self._runner.run(calls) if calls else []
        compare = open_comparison(None)
        return [Outcome(how="ok", value=compare(call)) for call in calls]

    def _call(self, task: Task, completion: str) -> dict[str, Any]:
        return {
            "completion": completion,
            "files": task.fields["files"],
            "oracle": task.fields["oracle"],
            "longest": self.longest,
        }

    def _scored(self, task: Task, outcome: Outcome, results: bool | str | None) -> Score:
        if outcome.how == "infra_error":
            return failure(f"the comparison failed: {outcome.explanation}")
        if outcome.how != "ok":
            return Score(value=0.0, status="wrong", explanation=f"the comparison was ended: {outcome.how}")
        if "malformed" in outcome.value:
            return Score(value=self.malformed, status="wrong", explanation=outcome.value["malformed"])
        near, exact = float(outcome.value["similarity"]), bool(outcome.value["exact"])
        parts = {"similarity": Score(value=near, status="ok" if exact else "wrong")}
        right = exact
        if isinstance(results, str):
            return failure(f"task '{task.key}': {results}")
        if results is not None:
            right = results
            parts["results"] = Score(value=float(results), status="ok" if results else "wrong")
        long = f"; {', '.join(outcome.value['too_long'])[:200]} not compared" if outcome.value["too_long"] else ""
        return Score(
            value=near if self.measure == "similarity" else float(exact),
            status="ok" if right else "wrong",
            explanation=f"similarity {near:.4f}{', the true patch' if exact else ''}{long}",
            parts=parts,
        )

    async def _same_results(self, tasks: Mapping[int, Task], outcomes: Mapping[Key, Outcome]) -> dict[Key, bool | str]:
        """Whether edited files give the results of the true patch, of each completion with edits; or how the sandbox
        failed. The true patch of a task is run once.
        """

        async def of(number: int, task: Task) -> dict[Key, bool | str]:
            files = task.fields["files"]
            own = {
                key: joined({**files, **outcome.value["after"]})
                for key, outcome in outcomes.items()
                if key[0] == number and outcome.how == "ok" and "after" in outcome.value
            }
            if not own:
                return {}
            wanted, programs = joined({**files, **task.fields["oracle"]}), list(dict.fromkeys(own.values()))
            pool = open_pool(self.weakest)
            found = await same_results(wanted, programs, task.fields["calls"], pool, self.limits)
            by_program = dict(zip(programs, found, strict=True))
            return {key: by_program[program] for key, program in own.items()}

        found = await asyncio.gather(*(of(number, task) for number, task in tasks.items()))
        return {key: same for each in found for key, same in each.items()}

    def _fault(self, task: Task) -> str:
        """Why a task cannot be scored; empty if it can."""
        files, oracle, calls = (task.fields.get(name) for name in ("files", "oracle", "calls"))
        for name, given in (("files", files), ("oracle", oracle)):
            if not isinstance(given, Mapping) or not given or not all(isinstance(text, str) for text in given.values()):
                return f"needs the field {name}, an object from path to text"
            if outside := [path for path in given if path.startswith("/") or ".." in path.split("/")]:
                return f"has the path {outside[0]!r} in {name}; give one below the folder of the files"
        assert isinstance(files, Mapping) and isinstance(oracle, Mapping), "checked above"
        wanted = changes(files, oracle)
        if not wanted:
            return "has an oracle that changes nothing"
        if (most := max(map(len, wanted.values()))) > self.longest:
            return f"has a true difference of {most} characters, and longest is {self.longest}"
        if self.execution and not (isinstance(calls, list) and calls and all(isinstance(one, str) for one in calls)):
            return "has no calls, a list of expressions, which execution compares results of"
        return ""

    @cached_property
    def _runner(self) -> Runner:
        limits = WorkerLimits(
            cpu_seconds=self.time_limit, wall_seconds=ON_THE_CLOCK * self.time_limit, memory_mib=self.memory_mib
        )
        return Runner(f"{MODULE}:open_comparison", limits=limits, preload=(MODULE,))

    def __getstate__(self) -> dict[str, Any]:
        """The settings without the workers."""
        return {name: value for name, value in self.__dict__.items() if name != "_runner"}


def _with_cut(score: Score, completion: str) -> Score:
    """The score; its explanation states where a part of the completion was not read."""
    if len(completion) <= LONGEST:
        return score
    return replace(score, explanation=f"{score.explanation}; of the first {LONGEST} characters")


def joined(files: Mapping[str, str]) -> str:
    """One program of all files, in the order of their paths."""
    return "\n".join(files[path] for path in sorted(files))
