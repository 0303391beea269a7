"""How many answers must be verified until a correct one is found: a set chosen by hidden states, or any order.

Source: Representation-based exploration (RepExp), arXiv:2510.11686, section 3: from a large pool of sampled answers a
small one is chosen before verification. h is the mean of the last hidden states of an answer's tokens, projected at
random to `width` numbers, less the mean of the pool. The first is random; each next one has the largest h' L h, the
novelty beside those chosen (`posttrain.statistics.elliptical`). In random order the first correct of c in a pool of N
is expected after (N + 1) / (c + 1) calls.

    posttrain diagnose coreset runs/grpo-1 tasks=mine.jsonl verifier=match pool=64

Tasks without a correct answer in the pool are left out and counted.

Differs: the random projection is dense (Gaussian), where the recipe has a sparse one.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, Server, wait_for
from posttrain.statistics.elliptical import coreset, random_calls
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Segment, Task, Trajectory


@frozen
class Coreset(Diagnostic):
    """Counts calls of a verifier in a chosen and in a random order."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """Prompts that are answered."""
    verifier: Reward
    """Scores the answers; status ``ok`` is correct."""
    prompts: PositiveInt = 64
    """Tasks that are answered, from the first."""
    pool: Annotated[int, Field(ge=2, le=100_000)] = 64
    """Answers of each (6,400 in the paper)."""
    width: PositiveInt = 512
    """Numbers that states are projected to."""
    ridge: PositiveFloat = 1.0
    """lambda."""
    sampling: Sampling = Sampling(max_tokens=64)
    """How answers are sampled."""

    def examine(self, *subjects: Subject) -> Finding:
        """Sample, choose, verify."""
        [subject] = subjects
        policy = subject.load()
        tasks = self.tasks.load()[: self.prompts]
        groups = wait_for(self._sampled(subject.serve(policy), tasks))
        rows = [row for group in groups if (row := self._row(policy, group)) is not None]
        values: dict[str, Any] = {"tasks": len(tasks), "counted": len(rows), "pool": self.pool}
        for name in ("chosen", "random"):
            own = mean([row[name] for row in rows]) if rows else None
            values[name] = None if own is None else {"mean": own.value, "interval": list(own.interval)}
        lines = [f"{len(rows)} of {len(tasks)} tasks have a correct answer among {self.pool}"]
        for name in ("chosen", "random") if rows else ():
            low, high = values[name]["interval"]
            lines.append(f"calls until a correct one, {name} order: {values[name]['mean']:.1f} [{low:.1f}, {high:.1f}]")
        return Finding(values=values, lines=lines)

    async def _sampled(self, server: Server, tasks: Sequence[Task]) -> list[Group]:
        """The scored answers of each task."""

        async def one(task: Task) -> Group:
            sampler = server.bind("coreset", task.key)
            prompt = sampler.prompt(task)
            written = await sampler.sample(prompt.token_ids, self.pool, self.sampling, prompt.vectors)
            rollouts = tuple(
                Trajectory(
                    task=task,
                    segments=(prompt, Segment(actor="policy", token_ids=c.token_ids, trained=True, text=c.text)),
                    stop_reason=c.stop_reason,
                    sample=i,
                )
                for i, c in enumerate(written)
            )
            return await scored(Group(key=task.key, trajectories=rollouts), self.verifier, RewardContext())

        return list(await asyncio.gather(*map(one, tasks)))

    def _row(self, policy: Any, group: Group) -> dict[str, float] | None:
        """Calls in both orders; None without a correct answer."""
        from posttrain.components.diagnostics._likelihoods import last_states

        right = [t.solved for t in group]
        if not any(right):
            return None
        states = last_states(policy, [(t.token_ids, len(t.segments[0])) for t in group])
        pooled = np.array([own.mean(0) if len(own) else np.zeros(states[0].shape[1:]) for own in states])
        rng = np.random.default_rng([self.pool, len(group.key)])
        projection = rng.normal(0.0, self.width**-0.5, (pooled.shape[1], self.width))
        order = coreset(pooled @ projection, self.pool, ridge=self.ridge, first=int(rng.integers(len(right))))
        chosen = next(place for place, i in enumerate(order) if right[i]) + 1
        return {"chosen": float(chosen), "random": random_calls(sum(right), len(right))}
