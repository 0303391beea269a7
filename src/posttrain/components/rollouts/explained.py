"""ExPO: completions of the bare question, and an explanation that the policy samples with the answer in the prompt.

Source: Zhou et al. 2025 (ExPO), arXiv:2507.02834. An explanation c is sampled from pi(. | question, answer), and
trained as if it followed the bare question, with the answer after it. c is likelier under the policy than an expert's
solution, and raises the probability of the answer. It is not a rollout of the question: advantages are those of the
completions alone.

An explanation ends where the `marker` of the answer begins. The marker is kept, and the reference answer follows it,
instead of the policy's. It was not sampled under the bare question, so it is a demonstration, in a group of its own
without comparisons. Objectives distinguish its tokens by their origin (`by_origin`).

Differs: an explanation without the marker, one whose prompt leaves no room in the context, and one that does not fit
after the bare question are not trained; with `when: unsolved`, neither is one of a task whose completions could not be
scored. As in the paper, the reasoning before the marker is not verified.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.datasets.templates import EXPLAIN, check_revealing, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Fact, Group, Segment, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class Explanation(Fact):
    """Source of an explanation."""

    explained: str
    """The prompt with the answer in it."""


@frozen
class Explained(Rollout):
    """Samples `n` completions, and an explanation."""

    n: PositiveInt = 8
    """Completions per task."""
    request: Annotated[str, AfterValidator(check_revealing)] = EXPLAIN
    """Prompt template for an explanation. Placeholders: question, answer. In a chat it replaces the last message."""
    marker: Annotated[str, Field(min_length=1)] = "####"
    """Text before the final answer in the format that the reward reads."""
    when: Literal["always", "unsolved"] = "always"
    """Whether every task is explained, or only those without a correct completion."""
    sampling: Sampling = Sampling()
    """How completions and explanations are sampled."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have an answer."""
        without = [task.key for task in tasks if task.answer is None]
        if without:
            raise UserError(
                f"the explained rollout shows the answer, but {len(without)} of {len(tasks)} tasks have none (the "
                f"first: {without[0]}); give answers, or take the rollout 'independent'"
            )

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """A group of the completions, and one of the explanation if there is one."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        own = await scorer(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        if self.when == "unsolved" and (own.solved or all(t.score and t.score.status == "error" for t in own)):
            return [own]
        explanation = await self._explain(task, prompt, sampler)
        if explanation is None:
            return [own]
        return [own, await scorer(Group(key=task.key, trajectories=(explanation,)))]

    async def _explain(self, task: Task, prompt: Segment, sampler: Sampler) -> Trajectory | None:
        """An explanation with the reference answer, as a completion of the bare prompt; None if it is not usable."""
        shown = sampler.prompt(replace(task, prompt=prompt_from(task, self.request, {"answer": task.answer or ""})))
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
