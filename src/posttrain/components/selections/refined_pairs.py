"""Pairs of the policy's own texts that agents review in phases: retrieval, merits, flaws, a strict verdict, reflection.

Source: path A of Igniting Creative Writing, arXiv:2508.21476, and its release (multi_agent at 992c2287).

1  retrieval: of the tasks with a field ``label`` (1 or 0) and a demonstration, the `search` whose requests are nearest
   by cosine are sorted by their field ``clicks``, most first, and the first `keep` are examples for all agents
2  one agent lists merits and one flaws, in one round; they do not answer one another
3  a judge gives 1 to a text that is good in every respect, and else 0; there is no tie
4  a reflecting agent sees all of it; its verdict is final, and it may overturn only a clear error

`n` texts are sampled for each task; each with a 1 is preferred to each with a 0. A text without a readable
verdict is in no pair, and is counted. Without a phase in `phases` the judge sees nothing of it.

With ``role: null`` the agents are code for greetings (`posttrain.datasets.reviews`), whose judge slips with probability
`slips`; for texts of your own give a role whose model follows instructions.

Differs: embeddings are counts of character pieces, and the numbers of retrieved examples are not published.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.selections import Chosen, Selection
from posttrain.datasets.reviews import CodeReviewers, ModelReviewers, Reviewed, Reviewers
from posttrain.datasets.templates import question_of
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.errors import NoAnswer
from posttrain.grading.strict_json import object_in
from posttrain.grading.text_pieces import embedded
from posttrain.types import Message, Preference, Task

REPLIES: Final = Sampling(temperature=0.0, max_tokens=512)
"""How agents reply."""
Phase = Literal["retrieval", "merits", "flaws", "reflection"]


@frozen
class RefinedPairs(Selection):
    """Replaces the pairs of tasks by the policy's own texts, by the verdicts of agents."""

    role: str | None = None
    """The model of all agents; None has agents by code."""
    phases: tuple[Phase, ...] = ("retrieval", "merits", "flaws", "reflection")
    """What there is besides the judge."""
    n: Annotated[int, Field(ge=2, le=64)] = 4
    """Texts of a task."""
    sampling: Sampling = Sampling(max_tokens=64)
    """How texts are sampled."""
    search: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Nearest requests that are sorted by clicks."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 16
    """Examples that agents see."""
    slips: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.15
    """Probability that the judge by code gives the other verdict."""
    first: PositiveInt | None = None
    """Number of tasks that are used, from the first; None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, and the agents' model."""
        return frozenset({"policy"} | ({self.role} if self.role is not None else set()))

    @property
    def writes(self) -> frozenset[str]:
        """Pairs."""
        return frozenset({"preferences"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task its texts and their verdicts, None for one that cannot be read."""
        writer = sampler_of("policy", samplers, f"the {self.kind} selection samples from")
        pool = [task for task in tasks if task.demonstrations and task.fields.get("label") in (0, 1)]

        async def one(task: Task) -> dict[str, Any]:
            prompt = writer.prompt(task)
            room = writer.context - len(prompt)
            found = await writer.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
            whole = [c.text for c in found if c.stop_reason == "stop"]
            texts = [t for t in dict.fromkeys(whole) if len(writer.encode_completion(task.prompt, t)) <= room]
            examples = retrieved(task, pool, self.search, self.keep) if "retrieval" in self.phases else []
            agents = self._agents(task, samplers)
            verdicts = [await self._reviewed(agents, question_of(task), text, examples) for text in texts]
            return {"texts": texts, "verdicts": verdicts}

        return list(await asyncio.gather(*map(one, tasks[: self.first])))

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with a text of each verdict."""
        kept = []
        seen = Counter[str]()
        for task, row in zip(tasks, measured, strict=False):  # further tasks were not sampled
            by_verdict = {v: [t for t, own in zip(row["texts"], row["verdicts"], strict=True) if own == v]
                          for v in (1, 0, None)}  # fmt: skip
            seen.update({str(verdict): len(texts) for verdict, texts in by_verdict.items()})
            if by_verdict[1] and by_verdict[0]:
                pairs = tuple(Preference(chosen=a, rejected=b) for a in by_verdict[1] for b in by_verdict[0])
                origin = [{"writer": "policy"}] * 2 * len(pairs)
                kept.append(replace(task, preferences=pairs, fields={**task.fields, "origin": origin}))
        number = sum(len(task.preferences) for task in kept)
        return Chosen(
            tasks=kept,
            summary=f"{number} pairs of {len(kept)} of {len(measured)} tasks; of the texts {seen['1']} are good, "
            f"{seen['0']} are not, and {seen['None']} have no readable verdict",
        )

    def _agents(self, task: Task, samplers: Mapping[str, Sampler]) -> Reviewers:
        if self.role is None:
            return CodeReviewers(rng=Random(f"refined_pairs:{task.key}"), slips=self.slips)
        writer = sampler_of(self.role, samplers, f"the {self.kind} selection prompts").bind("review", task.key)

        async def ask(request: str) -> Any:
            try:
                [reply] = await writer.write((Message(role="user", content=request),), 1, REPLIES)
            except NoAnswer:
                return None
            return object_in(reply)

        return ModelReviewers(ask=ask)

    async def _reviewed(
        self, agents: Reviewers, question: str, text: str, examples: Sequence[Mapping[str, Any]]
    ) -> int | None:
        """The final verdict on a text."""
        own = Reviewed(question=question, text=text, examples=examples)
        if "merits" in self.phases:
            own = replace(own, merits=await agents.merits(own))
        if "flaws" in self.phases:
            own = replace(own, flaws=await agents.flaws(replace(own, merits=None)))
        lost = ("merits" in self.phases and own.merits is None) or ("flaws" in self.phases and own.flaws is None)
        found = None if lost else await agents.verdict(own)
        if found is None or "reflection" not in self.phases:
            return found and found[0]
        final = await agents.reflect(replace(own, verdict=found[0], reason=found[1]))
        return final and final[0]


def retrieved(task: Task, pool: Sequence[Task], search: int, keep: int) -> list[dict[str, Any]]:
    """Examples with the nearest requests, but the task's own, most clicked first."""
    near = embedded(question_of(task))
    others = [own for own in pool if own.key != task.key]
    closest = sorted(others, key=lambda own: -float(near @ embedded(question_of(own))))[:search]
    clicked = sorted(closest, key=lambda own: -float(own.fields.get("clicks", 0)))[:keep]
    return [{"question": question_of(o), "text": o.demonstrations[0], "label": o.fields["label"]} for o in clicked]
