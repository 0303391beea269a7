"""Trains on pairs: an explanation that the model writes with the answer in the prompt, preferred to its own sample.

Source: ExP-DPO of ExPO, Zhou et al. 2025, arXiv:2507.02834: for a question q with the answer a, chosen is c with a
after it, c ~ pi(. | q, a), and rejected a sample of pi(. | q); both are completions of the bare question. Offline the
texts are written once, by the initial policy; renewed, they are written again by the policy of each stage.

An explanation ends where the `marker` of the answer begins; the marker is kept and the reference answer follows it. One
without the marker gives no pair, nor does one that does not fit into the context, and a sample that is equal.

Differs: known from notes on the paper's third version. There, explanations are not filtered; nor are samples, unless
`rejected` is ``wrong``.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting, sample_all
from posttrain.datasets.templates import EXPLAIN, check_revealing, prompt_from
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.errors import UserError
from posttrain.types import Group, Preference, Task


@frozen
class Explained(Selection):
    """Replaces the pairs of tasks by an explanation and a sample."""

    reward: Reward
    """Scores the samples; status ``ok`` is correct."""
    request: Annotated[str, AfterValidator(check_revealing)] = EXPLAIN
    """Prompt template for an explanation. Placeholders: question, answer. In a chat it replaces the last message."""
    marker: Annotated[str, Field(min_length=1)] = "####"
    """Text before the final answer in the format that the reward reads."""
    rejected: Literal["any", "wrong"] = "any"
    """Which samples are rejected: any, as in the paper, or wrong ones only."""
    role: str = "policy"
    """The model that writes both."""
    temperature: NonNegativeFloat = 1.0
    """Sampling temperature."""
    max_tokens: PositiveInt = 64
    """Longest text."""
    first: PositiveInt | None = None
    """Number of tasks that are used, from the first; None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """The writer, and those of the reward."""
        return frozenset({self.role}) | self.reward.roles

    @property
    def writes(self) -> frozenset[str]:
        """Pairs."""
        return frozenset({"preferences"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task both texts, or the reason why there is no pair; None for tasks that are not used."""
        used = tasks[: self.first]
        without = [task.key for task in used if task.answer is None]
        if without:
            raise UserError(
                f"the explained selection shows the answer, but {len(without)} of {len(used)} tasks have none (the "
                f"first: {without[0]}); give answers, or take the selection 'sampled'"
            )
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        groups = await sample_all(used, samplers, self.reward, role=self.role, n=1, sampling=sampling, kind=self.kind)
        sampler = sampler_of(self.role, samplers, "the explained selection samples from")
        rows = [self._pair(task, group, sampler, sampling) for task, group in zip(used, groups, strict=True)]
        return [*await asyncio.gather(*rows), *[None] * (len(tasks) - len(used))]

    async def _pair(self, task: Task, group: Group, sampler: Sampler, sampling: Sampling) -> dict[str, Any]:
        """Chosen and rejected text of a task, or a reason."""
        [own] = group
        if fitting(group, sampler) != [own] or own.stop_reason == "length":
            return {"reason": "the sample was cut"}
        if self.rejected == "wrong" and own.score is not None and own.score.status != "wrong":
            return {"reason": "the sample is not wrong"}
        asked = replace(task, prompt=prompt_from(task, self.request, {"answer": task.answer or ""}))
        shown = sampler.prompt(asked)
        if len(shown) >= sampler.context:
            return {"reason": "the request does not fit into the context"}
        stopped = replace(sampling, stop=(*sampling.stop, self.marker))
        writer = sampler.bind("explained", task.key)
        [completion] = await writer.sample(shown.token_ids, 1, stopped, shown.vectors)
        if not sampler.decode(completion.token_ids).endswith(self.marker):
            return {"reason": f"the explanation has no '{self.marker}'"}
        chosen = f"{completion.text}{self.marker} {task.answer}"
        room = sampler.context - len(sampler.prompt(task))
        if len(sampler.encode_completion(task.prompt, chosen)) > room:
            return {"reason": "the explanation does not fit after the question"}
        rejected = own.completion
        if chosen == rejected or not rejected.strip():
            return {"reason": "both texts are equal, or the sample is empty"}
        return {"chosen": chosen, "rejected": rejected, "solved": own.solved}

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with their pairs; the reasons of the others are counted in the summary."""
        chosen = [_with(task, row) for task, row in zip(tasks, measured, strict=True) if row and "chosen" in row]
        rows = [row for row in measured if row is not None]
        reasons = Counter(row["reason"] for row in rows if "reason" in row)
        reasons_shown = "".join(f"; {number} without: {reason}" for reason, number in sorted(reasons.items()))
        solved = sum(row["solved"] for row in rows if "chosen" in row)
        return Chosen(
            tasks=chosen,
            summary=f"{len(chosen)} of {len(rows)} tasks have an explanation and a sample, of which {solved} are "
            f"right{reasons_shown}",
        )


def _with(task: Task, row: Mapping[str, Any]) -> Task:
    """A task with the pair in place of its own."""
    pair = Preference(chosen=row["chosen"], rejected=row["rejected"])
    origin = [{"writer": "explanation"}, {"writer": "sample", "right": row["solved"]}]
    return replace(task, preferences=(pair,), fields={**task.fields, "origin": origin})
