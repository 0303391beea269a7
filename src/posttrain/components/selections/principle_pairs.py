"""Pairs for a reward model that reads principles: a model compares its own responses by one principle at a time.

Source: SALMON, Sun et al. 2023, arXiv:2310.05910, and its release (IBM/SALMON at 7392a56, synthetic_preference.py,
aggregate_synthetic_preference.py). Two responses are sampled for each task. For every principle the model is shown
both, in both orders, and the score of an order is the log-probability of the letter of the first response less that of
the second. Then, `copies` times for each pair:

    1  the number of principles is geometric (0.2), drawn again while it is above 8; they are drawn at random, and each
       is negated with probability 1/2
    2  the margin of a principle is the mean of its two scores over the variance of all of its scores, 0 where the
       orders disagree; negation flips its sign
    3  the principle with the largest margin decides; where all are 0 the example is dropped
    4  the label is flipped with probability `noise`

The pair has the texts of its principles as the field ``principles``, which the stage `reward_model` shows with
``request``, and the decisive margin as ``margin``. ``scale: std`` divides by the standard deviation: over the variance,
a principle whose scores are c times larger has margins c times smaller, so that timid ones decide most.

Differs: the rules about texts that mention an AI and about languages, with their flips of .25, are left out. Responses
of under 16 characters are dropped there; `shortest` is 1 here, for short answers.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field, PositiveInt, field_validator

from posttrain.component import frozen
from posttrain.components.selections import Chosen, Selection
from posttrain.datasets.principles import Principle, listed
from posttrain.datasets.templates import check_places, fill, question_of
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.types import Preference, Task

COMPARE: Final = "{question}\na: {first}\nb: {second}\n{principle}?"
LETTERS: Final = (" a", " b")
SHARE, MOST = 0.2, 8


@frozen
class PrinciplePairs(Selection):
    """Replaces the pairs of tasks by a model's own responses, compared by principles."""

    principles: Annotated[Mapping[str, Principle], Field(min_length=1)]
    """The principles by name."""
    role: str = "policy"
    """The model that responds and compares."""
    template: str = COMPARE
    """Prompt of a comparison, after which a letter follows. Placeholders: question, first, second, principle."""
    sampling: Sampling = Sampling(max_tokens=64)
    """How responses are sampled."""
    copies: Annotated[int, Field(ge=1, le=64)] = 4
    """Examples of each pair, with principles of their own."""
    noise: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.1
    """Probability that a label is flipped."""
    scale: Literal["variance", "std"] = "variance"
    """What the margin of a principle is divided by."""
    first: PositiveInt | None = None
    """Number of tasks that are used, from the first; the others are left out. None takes all."""

    @field_validator("template")
    @classmethod
    def check_template(cls, template: str) -> str:
        """Refuse a misspelled placeholder."""
        return check_places(template, ("question", "first", "second", "principle"))

    @property
    def roles(self) -> frozenset[str]:
        """The model."""
        return frozenset({self.role})

    @property
    def writes(self) -> frozenset[str]:
        """Pairs."""
        return frozenset({"preferences"})

    @property
    def gives(self) -> frozenset[str]:
        """The margin."""
        return frozenset({"margin"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task both responses, and by principle the scores of the first in both orders."""
        sampler = sampler_of(self.role, samplers, f"the {self.kind} selection samples from")

        async def one(task: Task) -> dict[str, Any]:
            prompt = sampler.prompt(task)
            texts = [c.text for c in await sampler.sample(prompt.token_ids, 2, self.sampling, prompt.vectors)]
            room = sampler.context - len(prompt)
            if texts[0] == texts[1] or any(len(sampler.encode_completion(task.prompt, t)) > room for t in texts):
                return {"texts": texts, "scores": {}}
            names = list(self.principles)
            found = await asyncio.gather(*(self._compare(sampler, task, texts, self.principles[n].text) for n in names))
            return {"texts": texts, "scores": dict(zip(names, found, strict=True))}

        return list(await asyncio.gather(*(one(task) for task in tasks[: self.first])))

    async def _compare(self, sampler: Sampler, task: Task, texts: Sequence[str], principle: str) -> list[float]:
        """Scores of the first response, shown first and shown second."""
        start = len(sampler.encode(""))  # a start token, of models that have one
        found = []
        for order in ((0, 1), (1, 0)):
            values = {"question": question_of(task), "principle": principle}
            values |= {"first": texts[order[0]].strip(), "second": texts[order[1]].strip()}
            ids = sampler.encode(fill(self.template, values))
            letters = [sampler.encode(letter)[start:] for letter in LETTERS]
            logps = await asyncio.gather(*(sampler.logp(np.append(ids, letter)) for letter in letters))
            first, second = (float(np.sum(l[-len(w) :])) for l, w in zip(logps, letters, strict=True))  # noqa: E741
            found.append((first - second) * (1 if order == (0, 1) else -1))
        return found

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with examples, in their order."""
        spread = {
            name: self._spread([row["scores"][name] for row in measured if row["scores"]]) for name in self.principles
        }
        kept, examples, dropped = [], 0, 0
        for task, row in zip(tasks, measured, strict=False):  # further tasks were not sampled
            rng = Random(f"principled:{task.key}")
            drawn = [self._example(row, spread, rng) for _ in range(self.copies)] if row["scores"] else []
            pairs = tuple(pair for pair in drawn if pair is not None)
            dropped += len(drawn) - len(pairs)
            examples += len(pairs)
            if pairs:
                origin = [{"writer": self.role}] * len(pairs)
                kept.append(replace(task, preferences=pairs, fields={**task.fields, "origin": origin}))
        return Chosen(
            tasks=kept,
            summary=(
                f"{examples} examples of {len(kept)} of {len(measured)} tasks, by {len(self.principles)} principles; "
                f"{dropped} examples dropped, whose principles are undecided in both orders"
            ),
        )

    def _spread(self, scores: Sequence[Sequence[float]]) -> float:
        """What margins of a principle are divided by."""
        std = float(np.std(scores)) if len(scores) else 0.0
        return max(std**2 if self.scale == "variance" else std, 1e-6)

    def _example(self, row: Mapping[str, Any], spread: Mapping[str, float], rng: Random) -> Preference | None:
        """A pair with principles, None where none decides."""
        count = MOST + 1
        while count > MOST:
            count = 1
            while rng.random() >= SHARE:
                count += 1
        names = rng.sample(list(self.principles), min(count, len(self.principles)))
        forms = [(name, rng.random() < 0.5) for name in names]
        flipped = rng.random() < self.noise
        margins = [margin_of(row["scores"][n]) / spread[n] * (-1 if negated else 1) for n, negated in forms]
        decisive = max(margins, key=abs)
        if not decisive:
            return None
        chosen, rejected = row["texts"] if (decisive > 0) != flipped else row["texts"][::-1]
        shown = [self.principles[n].negated if negated else self.principles[n].text for n, negated in forms]
        return Preference(
            chosen=chosen, rejected=rejected, fields={"principles": listed(shown), "margin": abs(decisive)}
        )


def margin_of(scores: Sequence[float]) -> float:
    """Mean of the scores in both orders, 0 where they disagree."""
    one, other = scores
    return (one + other) / 2 if one * other > 0 else 0.0
