"""Completions of a prompt, and a refinement of each, sampled after the completion and a critique of it.

Source: Critique-GRPO, Zhang et al. 2025, arXiv:2506.03106, and its released code: n completions, each criticised and
refined once. Critiques are ``simple`` (correct or not), ``simple_gt`` (that, and the answer; the default script) or
``text``, by a critic model that sees a correct solution. A correct completion, and one that the critic has no reply to,
get ``simple_gt`` instead of ``text``; the fact `Refinement` records it.

A refinement is trained under the bare prompt, never after the critique. It was not sampled under that prompt, so it is
a demonstration: without log-probabilities, and not on-policy. All refinements are returned; a filter may select one
(`best_demonstration`).

Differs: a completion that could not be scored, or whose refinement's prompt leaves no room in the context, is not
refined. A refinement that does not fit after the bare prompt is cut.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.datasets.templates import Critiques
from posttrain.engines import Sampler, Sampling
from posttrain.errors import NoAnswer, UserError
from posttrain.types import Fact, Group, Message, Segment, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class Refinement(Fact):
    """Source of a refinement."""

    refines: int
    """Sample number of the criticised completion."""
    critique_kind: str
    """Kind of the critique, and the reason if it is not the kind of the setting."""
    critique: str


@frozen
class Critiqued(Rollout):
    """Samples `n` completions, then a refinement of each."""

    n: PositiveInt = 8
    """Completions, and refinements, per task."""
    critique: Literal["simple", "simple_gt", "text"] = "simple_gt"
    """Kind of the critiques; see above."""
    texts: Critiques = Critiques()
    """Templates of critiques and of the prompt for a refinement."""
    critic_role: str = "judge"
    """The model that writes the critiques of ``text``: a local model or an endpoint."""
    critic_sampling: Sampling = Sampling(temperature=0.0, max_tokens=512)
    """How critiques are sampled."""
    sampling: Sampling = Sampling()
    """How completions and refinements are sampled."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have an answer for critiques that reveal it."""
        without = [task.key for task in tasks if task.answer is None]
        if without and self.critique != "simple":
            raise UserError(
                f"critiques of kind {self.critique} show the answer, but {len(without)} of {len(tasks)} tasks have "
                f"none (the first: {without[0]}); give answers, or set rollout.critique=simple"
            )

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group: the scored completions, then their scored refinements."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling)
        own = await scorer(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        scored = [t for t in own if t.score is not None and t.score.status != "error"]
        critiques = await asyncio.gather(*(self._critique(rollout, samplers) for rollout in scored))
        refinements = await asyncio.gather(
            *(self._refine(rollout, *one, prompt, sampler) for rollout, one in zip(scored, critiques, strict=True))
        )
        refined = [trajectory for trajectory in refinements if trajectory is not None]
        if not refined:
            return [own]
        added = await scorer(Group(key=task.key, trajectories=tuple(refined)))
        return [replace(own, trajectories=(*own.trajectories, *added.trajectories))]

    async def _critique(self, rollout: Trajectory, samplers: Mapping[str, Sampler]) -> tuple[str, str]:
        """Kind and text of the critique of a completion."""
        task, right = rollout.task, rollout.solved
        if self.critique == "simple":
            return "simple", self.texts.simple(right=right)
        revealed = self.texts.revealed(right=right, answer=task.answer or "")
        if self.critique == "simple_gt" or right:
            return "simple_gt", revealed
        critic = sampler_of(self.critic_role, samplers)
        request = (Message(role="user", content=self.texts.request_to_critic(task, rollout.completion)),)
        try:
            (text,) = await critic.write(request, 1, self.critic_sampling)
        except NoAnswer as error:
            return f"simple_gt, since {error}", revealed
        return ("text", text) if text.strip() else ("simple_gt, since the critic said nothing", revealed)

    async def _refine(
        self, rollout: Trajectory, kind: str, critique: str, prompt: Segment, sampler: Sampler
    ) -> Trajectory | None:
        """A refinement as a completion of the bare prompt; None where the context has no room for it."""
        prompt_ids = sampler.encode(self.texts.request_to_policy(rollout.task, rollout.completion, critique))
        if len(prompt_ids) >= sampler.context:
            return None
        (completion,) = await sampler.sample(prompt_ids, 1, self.sampling)
        token_ids = completion.token_ids[: sampler.context - len(prompt)]
        segment = Segment(
            actor="demonstration",
            token_ids=token_ids,
            trained=True,
            version=completion.version,
            text=completion.text,
        )
        cut = len(token_ids) < len(completion.token_ids)
        return Trajectory(
            task=rollout.task,
            segments=(prompt, segment),
            stop_reason="length" if cut else completion.stop_reason,
            sample=self.n + rollout.sample,
            facts=(Refinement(refines=rollout.sample, critique_kind=kind, critique=critique),),
        )
