"""ExPO's sampling: attempts at the bare question, and an explanation that the policy writes while it sees the answer.

Source: Zhou et al. 2025 (ExPO), arXiv:2507.02834. An explanation c is drawn from pi(. | question, answer) and learned
as if it had followed the bare question, with the answer after it: c is likelier under the policy than what an expert
would write, and it raises the chance of the answer. It is no attempt: advantages are those of the attempts alone.

An explanation ends where the `marker` of the answer begins; the marker stays, and the right answer follows in the place
of what the policy would have said. Nobody sampled it under the bare question, so it is a demonstration, and it comes
back as a group of its own, which nothing is compared with. Objectives tell its tokens by that (`by_origin`).

Differs: one that never comes to the marker, whose prompt leaves no room, or that does not fit behind the bare question
is not learned, nor is one for a task of which nothing could be judged, with `when: unsolved`. Whether what leads to the
marker is sound is not looked at, as in the paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Judge, Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.datasets.templates import EXPLAIN, asked, check_revealing
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Fact, Group, Segment, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class Explanation(Fact):
    """What an explanation was written after."""

    explained: str
    """The prompt with the answer in it."""


@frozen
class Explained(Rollout):
    """`n` completions, and an explanation beside them."""

    n: PositiveInt = 8
    """Completions per task."""
    request: Annotated[str, AfterValidator(check_revealing)] = EXPLAIN
    """What the policy is asked when it explains. Places: question, answer. Of messages the last one is replaced."""
    marker: Annotated[str, Field(min_length=1)] = "####"
    """What stands before the final answer in the form that the reward reads."""
    when: Literal["always", "unsolved"] = "always"
    """Whether every task is explained, or those alone at which every attempt failed."""
    sampling: Sampling = Sampling()
    """How attempts and explanations are drawn."""
    role: str = "policy"
    """The model that writes, and learns."""

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have an answer to be explained."""
        without = [task.key for task in tasks if task.answer is None]
        if without:
            raise UserError(
                f"the explained rollout shows the answer, but {len(without)} of {len(tasks)} tasks have none (the "
                f"first: {without[0]}); give answers, or take the rollout 'independent'"
            )

    async def collect_judged(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge) -> list[Group]:
        """A group of the attempts; where there is an explanation to learn, another one that holds it."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        own = await judge(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        if self.when == "unsolved" and (own.solved or all(t.score and t.score.status == "error" for t in own)):
            return [own]
        explanation = await self._explain(task, prompt, sampler)
        if explanation is None:
            return [own]
        return [own, await judge(Group(key=task.key, trajectories=(explanation,)))]

    async def _explain(self, task: Task, prompt: Segment, sampler: Sampler) -> Trajectory | None:
        """An explanation with the right answer, as a completion of the bare prompt."""
        shown = sampler.prompt(replace(task, prompt=asked(task, self.request, {"answer": task.answer or ""})))
        if len(shown) >= sampler.context:
            return None
        sampling = replace(self.sampling, stop=(*self.sampling.stop, self.marker))
        (completion,) = await sampler.sample(shown.token_ids, 1, sampling, shown.vectors)
        if not sampler.decode(completion.token_ids).endswith(self.marker):
            return None
        end = f" {task.answer}"
        token_ids = np.concatenate([completion.token_ids, sampler.encode_completion(task.prompt, end)]).astype(np.int64)
        if len(prompt) + len(token_ids) > sampler.context:
            return None
        segment = Segment(
            actor="demonstration",
            token_ids=token_ids,
            trained=True,
            version=completion.version,
            text=completion.text + self.marker + end,
        )
        return Trajectory(
            task=task,
            segments=(prompt, segment),
            stop_reason="stop",
            sample=self.n,
            facts=(Explanation(explained=shown.text),),
        )
