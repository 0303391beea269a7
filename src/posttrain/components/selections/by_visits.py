r"""Tasks by how many visits of a tree search the policy needs to solve them: the harder ones, and the unsolved.

Source: ThinkLite-VL, Wang et al. 2025, arXiv:2504.07934, section 3.2, and its released code (si0wang/ThinkLite-VL at
37fb148, mcts.py). A state is a prefix of steps; an expansion samples k next steps, a random one of which is taken, and
the rollout goes on from there to an answer. The search counts visits only (see `posttrain.components.selections.
_visits`) and ends with the first correct answer, in visit K, or after `budget` visits. Kept are tasks with K above
`threshold`, and those that no visit solves, whose K is budget + 1.

K is counted from 1: a task that the first rollout solves has K = 1. The release counts from 0, and its script writes
solved tasks only, which drops the unsolved ones that the paper keeps (`unsolved: false`).

It is an offline pass by the policy as the stage finds it. Up to `budget` times `k` steps and a rollout are sampled for
a task: compare with a band of success rates (`by_level`) at equal tokens.

Differs: what follows the taken child is one completion, not a step at a time, which has the same distribution; a
completion with more than `depth` steps counts as a failure. Rollouts that cannot be scored are failures here, and a
task without any scored one is left out and counted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._visits import Visited, visits_to_solve
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.types import Group, IntArray, Segment, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A prefix of a solution."""

    token_ids: IntArray
    """What was sampled after the prompt."""
    depth: int = 0


@frozen
class ByVisits(Selection):
    """Keeps tasks that a search solves late, or never."""

    reward: Reward
    """Verifies an answer; status ``ok`` is correct."""
    k: Annotated[int, Field(ge=1, le=32)] = 3
    """Next steps that are sampled in an expansion."""
    budget: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Most visits."""
    threshold: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Visits above which a task is kept."""
    unsolved: bool = True
    """Whether tasks that no visit solves are kept."""
    depth: Annotated[int, Field(ge=1, le=100)] = 10
    """Most steps of a solution."""
    delimiter: Annotated[str, Field(min_length=1)] = "\n"
    """What ends a step."""
    sampling: Sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=64)
    """How steps are sampled; `max_tokens` limits a whole solution."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, and those of the reward."""
        return frozenset({"policy"}) | self.reward.roles

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task K; None where no rollout could be scored."""
        sampler = sampler_of("policy", samplers, f"the {self.kind} selection samples from")
        searches = [Search(self, task, sampler.bind("visits", task.key), samplers) for task in tasks]
        return list(await asyncio.gather(*(search.run() for search in searches)))

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The hard and the unsolved tasks, in their own order."""
        known = [visits for visits in measured if visits is not None]
        hard = sum(self.threshold < visits <= self.budget for visits in known)
        never = sum(visits > self.budget for visits in known)
        failed = len(measured) - len(known)
        return Chosen(
            tasks=[task for task, visits in zip(tasks, measured, strict=True) if self._keeps(visits)],
            summary=(
                f"{hard} of {len(tasks)} tasks are solved after more than {self.threshold} visits, "
                f"{never} not within {self.budget}{'' if self.unsolved else ', which are left out'}"
                + (f"; {failed} could not be scored and are left out" if failed else "")
            ),
        )

    def _keeps(self, visits: int | None) -> bool:
        return visits is not None and visits > self.threshold and (self.unsolved or visits <= self.budget)

    def count(self, depth: int) -> int:
        """Steps that are sampled after this many; 0 where no more may follow."""
        return self.k if depth < self.depth else 0

    def sampling_of(self, sampler: Sampler, prompt: int, written: int, *, one_step: bool) -> Sampling | None:
        """How the next step or the rest is sampled; None where no room is left."""
        room = min(self.sampling.max_tokens - written, sampler.context - prompt - written)
        if room < 1:
            return None
        stop = (*self.sampling.stop, self.delimiter) if one_step else self.sampling.stop
        return replace(self.sampling, max_tokens=room, stop=stop)


class Search:
    """The search of one task."""

    def __init__(self, settings: ByVisits, task: Task, sampler: Sampler, samplers: Mapping[str, Sampler]) -> None:
        self.settings, self.task, self.sampler = settings, task, sampler
        self.context = RewardContext(samplers=samplers)
        self.prompt = sampler.prompt(task)
        self.any_scored = False

    async def run(self) -> int | None:
        """K, or None."""
        visits = await visits_to_solve(
            Visited(state=Steps(token_ids=np.zeros(0, np.int64))),
            expand=self.expand,
            solves=self.solves,
            budget=self.settings.budget,
            uniform=self.sampler.uniform,
        )
        return visits if self.any_scored else None

    async def expand(self, steps: Steps) -> list[Visited[Steps]]:
        """The next steps."""
        sampling = self.settings.sampling_of(self.sampler, len(self.prompt), len(steps.token_ids), one_step=True)
        count = self.settings.count(steps.depth)
        if sampling is None or not count:
            return []
        found = await self.sampler.sample(self._ids(steps), count, sampling, self.prompt.vectors)
        return [
            Visited(
                state=Steps(token_ids=np.concatenate([steps.token_ids, c.token_ids]), depth=steps.depth + 1),
                ended=self.settings.delimiter not in self.sampler.decode(c.token_ids),
            )
            for c in found
        ]

    async def solves(self, node: Visited[Steps]) -> bool:
        """Whether a completion of the steps is correct."""
        steps = node.state
        sampling = self.settings.sampling_of(self.sampler, len(self.prompt), len(steps.token_ids), one_step=False)
        ids, stop = steps.token_ids, "stop"
        if not node.ended:
            if sampling is None:
                return False
            [rest] = await self.sampler.sample(self._ids(steps), 1, sampling, self.prompt.vectors)
            ids, stop = np.concatenate([ids, rest.token_ids]), rest.stop_reason
        text = self.sampler.decode(ids)
        if stop == "length" or text.count(self.settings.delimiter) > self.settings.depth:
            self.any_scored = True
            return False
        segment = Segment(actor="policy", token_ids=ids, trained=True, text=text)
        answer = Trajectory(task=self.task, segments=(self.prompt, segment), stop_reason="stop")
        group = await scored(Group(key=self.task.key, trajectories=(answer,)), self.settings.reward, self.context)
        score = group.trajectories[0].score
        self.any_scored |= score is not None and score.status != "error"
        return group.trajectories[0].solved

    def _ids(self, steps: Steps) -> IntArray:
        return np.concatenate([self.prompt.token_ids, steps.token_ids])
