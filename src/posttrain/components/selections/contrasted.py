"""Pairs of a demonstration and a fresh sample of a model: what a discriminator of experts learns from.

Source: the demonstrations' branch of the survey on inverse reinforcement learning, arXiv:2507.13158; generative
adversarial imitation, Ho and Ermon 2016, arXiv:1606.03476, with a loss of pairs in place of single texts. The first
demonstration of each task is preferred to what the role writes when the stage begins. The stage `reward_model` on these
pairs is the discriminator, and its score the reward.

A sample that equals the demonstration gives no pair. Several such stages, each before one of reinforcement, renew the
discriminator on the policy's newest samples.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.selections import Chosen, Selection
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.types import Preference, Task


@frozen
class Contrasted(Selection):
    """Replaces the pairs of tasks by their demonstration and samples of a model."""

    role: str = "policy"
    """The model that is contrasted with the demonstrations."""
    n: Annotated[int, Field(ge=1, le=64)] = 1
    """Samples of each task."""
    temperature: NonNegativeFloat = 1.0
    """Of the samples."""
    max_tokens: PositiveInt = 64
    """Longest sample."""
    first: PositiveInt | None = None
    """Number of tasks that are sampled, from the first; the others are left out. None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that is sampled."""
        return frozenset({self.role})

    @property
    def writes(self) -> frozenset[str]:
        """Pairs."""
        return frozenset({"preferences"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task the different samples that fit into the context."""
        sampler = sampler_of(self.role, samplers, f"the {self.kind} selection samples from")
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)

        async def one(task: Task) -> list[str]:
            prompt = sampler.prompt(task)
            texts = [c.text for c in await sampler.sample(prompt.token_ids, self.n, sampling, prompt.vectors)]
            room = sampler.context - len(prompt)
            return [t for t in dict.fromkeys(texts) if len(sampler.encode_completion(task.prompt, t)) <= room]

        return list(await asyncio.gather(*(one(task) for task in tasks[: self.first])))

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks that have a demonstration and a sample that differs from it, in their order."""
        kept, same, bare = [], 0, 0
        for task, texts in zip(tasks, measured, strict=False):  # further tasks were not sampled
            shown = next(iter(task.demonstrations), None)
            pairs = tuple(Preference(chosen=shown, rejected=t) for t in texts if t != shown) if shown else ()
            if pairs:
                origin = [{"chosen": "demonstration", "rejected": self.role}] * len(pairs)
                kept.append(replace(task, preferences=pairs, fields={**task.fields, "origin": origin}))
            elif shown is None:
                bare += 1
            else:
                same += 1
        return Chosen(
            tasks=kept,
            summary=(
                f"{len(kept)} of {len(measured)} tasks have a demonstration that differs from samples of the role "
                f"'{self.role}'; {same} do not, {bare} have no demonstration"
            ),
        )
