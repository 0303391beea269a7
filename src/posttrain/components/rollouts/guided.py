"""Rollouts that a guide and the policy write together: one rolls in, the other continues to the end.

Source: RLGF, Chang et al. 2023, arXiv:2306.11816, by its release (TRIL). A whole completion is sampled by the roll-in
model. With probability beta, a prefix of it is kept whose length is uniform on 1 .. L - 1; else, or if L is below 2,
there is none. The roll-out model continues to the end.

    ppo_plus_plus   the guide rolls in and the policy out; the policy learns from what it wrote
    aggrevated      the policy rolls in and the guide out; the policy learns from its prefix, a critic of the guide from
                    the rest. A rollout without a prefix is the guide's alone, for its critic
    lols            in each step ppo_plus_plus with probability tau (0.8), else aggrevated
    d2lols          aggrevated while progress is below tau (20 of 50 steps), then ppo_plus_plus

Tokens of the guide are never learned from by the policy. In `aggrevated` they are part of the time axis of the
estimator, so that rewards reach the prefix through the critic's values.

Differs: the guide's tokens have no penalty in the reward, since the policy did not draw them.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Prefix, Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Completion, Group, Segment, Task, Trajectory

Share = Annotated[float, Field(ge=0.0, le=1.0)]
TAU: Final = {"lols": 0.8, "d2lols": 0.4}


@frozen
class Guided(Rollout):
    """Samples `n` rollouts of the policy and a guide."""

    n: PositiveInt = 4
    """Rollouts per task."""
    algorithm: Literal["ppo_plus_plus", "aggrevated", "lols", "d2lols"] = "d2lols"
    """Who rolls in, and who out."""
    beta: Share = 0.8
    """Probability of a prefix (0.6 to 1 in the release); 0 is PPO for ``ppo_plus_plus``."""
    tau: Share | None = None
    """Of ``lols`` the probability of ``ppo_plus_plus`` in a step, of ``d2lols`` the share of the stage before it; None
    is 0.8 and 0.4."""
    sampling: Sampling = Sampling()
    """How the policy is sampled."""
    guide_sampling: Sampling | None = None
    """How the guide is sampled (top-k 50 and top-p 0.92 in the release); None is as the policy."""
    guide: str = "guide"
    """Role of the guide."""
    guide_critic: str = "guide_critic"
    """Role of the critic of rollouts that the guide ends."""

    @model_validator(mode="after")
    def check_tau(self) -> Self:
        """Refuse a tau that nothing reads."""
        if self.tau is not None and self.algorithm not in TAU:
            context = {"algorithm": self.algorithm}
            raise PydanticCustomError("tau", "tau is for lols and d2lols; the algorithm is {algorithm}", context)
        return self

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def roles(self) -> frozenset[str]:
        """The guide, and the critic of its roll-outs."""
        return frozenset({self.guide}) | self.critics

    @property
    def critics(self) -> frozenset[str]:
        """The critic of the guide's roll-outs, where there are any."""
        return frozenset() if self.algorithm == "ppo_plus_plus" else frozenset({self.guide_critic})

    @property
    def critic(self) -> str | None:
        """In a step in which the guide rolls out, its critic."""
        return self.guide_critic if self.algorithm == "aggrevated" else None

    @property
    def follows_progress(self) -> bool:
        """True for ``d2lols``."""
        return self.algorithm == "d2lols"

    def at(self, progress: float) -> "Guided":
        """The algorithm at this progress of the stage."""
        if self.algorithm != "d2lols":
            return self
        return self._as("aggrevated" if progress < self._tau else "ppo_plus_plus")

    def drawn(self, uniform: float) -> "Guided":
        """The algorithm of a step of ``lols``."""
        if self.algorithm != "lols":
            return self
        return self._as("ppo_plus_plus" if uniform < self._tau else "aggrevated")

    @property
    def _tau(self) -> float:
        return TAU[self.algorithm] if self.tau is None else self.tau

    def _as(self, algorithm: Literal["ppo_plus_plus", "aggrevated"]) -> "Guided":
        return replace(self, algorithm=algorithm, tau=None)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` rollouts. Raises `UserError` for a guide with other tokens."""
        if self.algorithm in TAU:
            return await self.at(0.0).drawn(0.0).collect(task, samplers)
        policy, guide = sampler_of("policy", samplers), sampler_of(self.guide, samplers)
        prompt = prompt_segment(task, policy)
        if not np.array_equal(prompt.token_ids, prompt_segment(task, guide).token_ids):
            raise UserError(
                f"the guided rollout needs a guide with the policy's tokenizer and template, but task {task.key} has "
                f"other tokens for the role '{self.guide}'; take a guide of the same family of models"
            )
        if self.algorithm == "ppo_plus_plus" and not self.beta:
            alone = await policy.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
            return [Group(key=task.key, trajectories=answers(task, prompt, alone, "policy"))]
        rollouts = [self._rollout(task, prompt, policy.bind("n", i), guide.bind("n", i), i) for i in range(self.n)]
        return [Group(key=task.key, trajectories=tuple(await asyncio.gather(*rollouts)))]

    async def _rollout(self, task: Task, prompt: Segment, policy: Sampler, guide: Sampler, sample: int) -> Trajectory:
        """One rollout: a prefix of a whole roll-in, and its continuation."""
        by_guide = self.algorithm == "ppo_plus_plus"
        kept, text, whole = 0, "", None
        if policy.uniform() < self.beta:
            whole = await self._sampled(guide if by_guide else policy, prompt, (), by_guide)
            if len(whole.token_ids) > 1:
                kept = 1 + int(policy.uniform() * (len(whole.token_ids) - 1))
                text = policy.decode(whole.token_ids[:kept])
        prefix = self._prefix(whole, kept, text, by_guide)
        rest = await self._sampled(policy if by_guide else guide, prompt, prefix.token_ids, not by_guide)
        written = sampled_segment(rest, "policy")
        if not by_guide:
            written = replace(written, actor=self.guide)
        return Trajectory(
            task=task,
            segments=(prompt, prefix, written),
            stop_reason=rest.stop_reason,
            sample=sample,
            facts=(Prefix(prefix_tokens=kept),),
        )

    def _prefix(self, whole: Completion | None, kept: int, text: str, by_guide: bool) -> Segment:
        """The prefix; an empty one is still the roll-in model's, so that the policy's rollouts stay its own."""
        actor = self.guide if by_guide else "policy"
        if whole is None or not kept:
            return Segment(
                actor=actor, token_ids=np.zeros(0, np.int64), trained=not by_guide, logp=np.zeros(0, np.float32)
            )
        segment = sampled_segment(whole, actor, trained=not by_guide)
        entropy = None if whole.entropy is None else whole.entropy[:kept]
        return replace(segment, token_ids=whole.token_ids[:kept], logp=whole.logp[:kept], entropy=entropy, text=text)

    async def _sampled(self, sampler: Sampler, prompt: Segment, prefix: object, by_guide: bool) -> Completion:
        """A completion of the prompt and a prefix."""
        sampling = self.guide_sampling if by_guide and self.guide_sampling is not None else self.sampling
        before = np.concatenate([prompt.token_ids, np.asarray(prefix, np.int64)])
        left = max(sampling.max_tokens - (len(before) - len(prompt)), 1)
        [completion] = await sampler.sample(before, 1, replace(sampling, max_tokens=left), prompt.vectors)
        return completion
