"""Completions of a prompt, and of each a refinement: the policy tries again with its attempt and a critique before it.

Source: Critique-GRPO, Zhang et al. 2025, arXiv:2506.03106, and its released code: n attempts, each criticised and
refined once. Critiques are ``simple`` (right or wrong), ``simple_gt`` (that, and the answer; the default script) or
``text``, which a critic writes who sees a right solution. A right attempt, and one about which the critic gives no
answer, get ``simple_gt`` in place of ``text``; the `Refinement` of a trajectory holds it.

A refinement is learned under the bare prompt, never after the critique. There nobody sampled its tokens, so it is a
demonstration: without log-probabilities, and no attempt of the policy's own. Every refinement comes back; keeping one
is a filter's work (`best_demonstration`).

Differs: an attempt whose judgement failed, or whose refinement's prompt leaves no room to write, is not refined. A
refinement that does not fit behind the bare prompt is cut.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Judge, Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.datasets.templates import Critiques
from posttrain.engines import Sampler, Sampling
from posttrain.errors import NoAnswer, UserError
from posttrain.types import Fact, Group, Message, Segment, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class Refinement(Fact):
    """What a refinement was made from."""

    refines: int
    """Sample number of the attempt that was criticised."""
    critique_kind: str
    """What kind of critique it was, and why where another kind was asked for."""
    critique: str


@frozen
class Critiqued(Rollout):
    """`n` completions, then a refinement of each."""

    n: PositiveInt = 8
    """Completions per task, and refinements."""
    critique: Literal["simple", "simple_gt", "text"] = "simple_gt"
    """What is said about an attempt."""
    texts: Critiques = Critiques()
    """How it is said, and how the policy is asked to try again."""
    critic_role: str = "judge"
    """The model that writes the critiques of ``text``: loaded here, or an endpoint."""
    critic_sampling: Sampling = Sampling(temperature=0.0, max_tokens=512)
    """How they are drawn."""
    sampling: Sampling = Sampling()
    """How attempts and refinements are drawn."""
    role: str = "policy"
    """The model that writes, and learns."""

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have an answer to be told."""
        without = [task.key for task in tasks if task.answer is None]
        if without and self.critique != "simple":
            raise UserError(
                f"critiques of kind {self.critique} tell the answer, but {len(without)} of {len(tasks)} tasks have "
                f"none (the first: {without[0]}); give answers, or set rollout.critique=simple"
            )

    async def collect_judged(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge) -> list[Group]:
        """One group: the attempts, then their refinements, all judged."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling)
        own = await judge(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        judged = [t for t in own if t.score is not None and t.score.status != "error"]
        said = await asyncio.gather(*(self._critique(attempt, samplers) for attempt in judged))
        tried = await asyncio.gather(
            *(self._refine(attempt, *words, prompt, sampler) for attempt, words in zip(judged, said, strict=True))
        )
        refined = [trajectory for trajectory in tried if trajectory is not None]
        if not refined:
            return [own]
        better = await judge(Group(key=task.key, trajectories=tuple(refined)))
        return [replace(own, trajectories=(*own.trajectories, *better.trajectories))]

    async def _critique(self, attempt: Trajectory, samplers: Mapping[str, Sampler]) -> tuple[str, str]:
        """The kind of critique that was to be had, and what it says."""
        task, right = attempt.task, attempt.solved
        if self.critique == "simple":
            return "simple", self.texts.simple(right=right)
        revealed = self.texts.revealed(right=right, answer=task.answer or "")
        if self.critique == "simple_gt" or right:
            return "simple_gt", revealed
        critic = sampler_of(self.critic_role, samplers)
        asked = (Message(role="user", content=self.texts.asked_of_critic(task, attempt.completion)),)
        try:
            (text,) = await critic.write(asked, 1, self.critic_sampling)
        except NoAnswer as error:
            return f"simple_gt, since {error}", revealed
        return ("text", text) if text.strip() else ("simple_gt, since the critic said nothing", revealed)

    async def _refine(
        self, attempt: Trajectory, kind: str, critique: str, prompt: Segment, sampler: Sampler
    ) -> Trajectory | None:
        """A refinement of an attempt, as a completion of the bare prompt."""
        asked = sampler.encode(self.texts.asked_of_policy(attempt.task, attempt.completion, critique))
        if len(asked) >= sampler.context:
            return None
        (completion,) = await sampler.sample(asked, 1, self.sampling)
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
            task=attempt.task,
            segments=(prompt, segment),
            stop_reason="length" if cut else completion.stop_reason,
            sample=self.n + attempt.sample,
            facts=(Refinement(refines=attempt.sample, critique_kind=kind, critique=critique),),
        )
