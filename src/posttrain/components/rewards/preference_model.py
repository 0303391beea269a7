"""Pairwise preferences of a model: the mean probability that it prefers a rollout to the others of its group.

Source: the pairwise preference model of RLHF Workflow, Dong et al. 2024, arXiv:2405.07863, section 2.2, and its
released code (github.com/RLHFlow/RLHF-Reward-Modeling, pair-pm). The model reads the prompt and both responses and
names the better one by a letter. With l the log-probability of a letter, and averaged over both orders of the two:

    p(first is better) = exp(l_A / T) / (exp(l_A / T) + exp(l_B / T))

At an endpoint the letters are looked up in its likeliest first tokens (``top_logprobs``).

Differs: all pairs of rollouts are compared, where the authors suggest a tournament for large groups. Responses stand
between marks, where the published form has none.
"""

import asyncio
from collections.abc import Sequence
from itertools import permutations
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure, fitting
from posttrain.datasets.templates import asked, marked, without
from posttrain.engines import Labelling, Sampler, next_logp
from posttrain.errors import NoAnswer, UserError
from posttrain.signals import Signal, logp_of
from posttrain.types import Group, Message, Score, Task, Trajectory

SEPARATORS = ("[CONTEXT]", "[RESPONSE A]", "[RESPONSE B]")
QUESTION = "[CONTEXT] {context} [RESPONSE A] {first} [RESPONSE B] {second}\n"


@frozen
class PreferenceModel(Reward):
    """Mean probability of being preferred; one half for a rollout without others."""

    role: str = "judge"
    """Role of the language model that compares."""
    temperature: PositiveFloat = 1.0
    """T: a higher temperature gives probabilities closer to one half."""
    longest: Annotated[int, Field(ge=1, le=10_000_000)] = 16384
    """Characters of a completion that are shown, its first ones; fewer of both where a prompt would pass the context
    of a model here. ``reward/cut`` is the share of completions with more."""
    marks: bool = True
    """Whether both responses stand between marks that they cannot contain. The published form has none: for a model
    that was trained on it, the words in brackets that separate its parts are the marks, and stand in no response."""

    @property
    def compares(self) -> bool:
        """True."""
        return True

    @property
    def roles(self) -> frozenset[str]:
        """The model that compares."""
        return frozenset({self.role})

    @property
    def judges(self) -> frozenset[str]:
        """The judge."""
        return self.roles

    @property
    def needs(self) -> frozenset[Signal]:
        """Log-probabilities of the letters."""
        return frozenset({logp_of(self.role)})

    @property
    def remote_needs(self) -> frozenset[Signal]:
        """All of them: the letters are labels."""
        return self.needs

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare all pairs of rollouts, in both orders."""
        sampler, count = context.sampler(self.role, self.kind), len(group)
        orders = list(permutations(range(count), 2))
        requests = (self._first_is_better(sampler, *(group.trajectories[i] for i in order)) for order in orders)
        cut_N = np.zeros(count, bool)
        first_NN = np.full((count, count), 0.5)
        for (i, j), (probability, longest) in zip(orders, await asyncio.gather(*requests), strict=True):
            first_NN[i, j] = probability
            cut_N[i] |= longest < len(group.trajectories[i].completion)
        better_NN = (first_NN + 1.0 - first_NN.T) / 2
        values = (better_NN.sum(1) - 0.5) / (count - 1) if count > 1 else np.full(count, 0.5)
        return [self._score(float(value), count, cut=bool(cut)) for value, cut in zip(values, cut_N, strict=True)]

    def _score(self, value: float, count: int, *, cut: bool) -> Score:
        """The score of a mean probability, NaN where a comparison has no answer."""
        if np.isnan(value):
            return failure(f"the endpoint of role '{self.role}' names no letter in a comparison with this rollout")
        explanation = f"{asked(self.role, QUESTION, str(self.marks))} prefers it to {value:.0%} of {count - 1} others"
        status: Literal["ok", "wrong"] = "ok" if value >= 0.5 else "wrong"
        return Score(value=value, status=status, explanation=explanation, parts={"cut": counted(cut)})

    async def _first_is_better(self, sampler: Sampler, first: Trajectory, second: Trajectory) -> tuple[float, int]:
        """Probability that the model prefers the first of two responses, shown in this order, and how many characters
        of each are shown; NaN without an answer.
        """

        def asking(characters: int, *, swapped: bool = False) -> tuple[Message, ...]:
            texts = (t.completion[:characters] for t in ((second, first) if swapped else (first, second)))
            one, other = (marked(text) if self.marks else without(text, SEPARATORS) for text in texts)
            text = QUESTION.format(context=prompt_text(first.task), first=one, second=other)
            return (Message(role="user", content=text),)

        whole = min(self.longest, max(len(first.completion), len(second.completion)))
        longest = fitting(sampler, whole, asking, reply=1)
        longest = fitting(sampler, longest, lambda n: asking(n, swapped=True), reply=1)  # as many in both orders
        prompt = asking(longest)
        if isinstance(sampler, Labelling):
            try:
                logp_a, logp_b = await sampler.label_logp(prompt, "AB")
            except NoAnswer:
                return float("nan"), longest
        else:
            letters = [self._letter(letter, sampler) for letter in "AB"]
            logp_a, logp_b = await next_logp(sampler, sampler.encode(prompt), letters)
        return float(1 / (1 + np.exp(np.clip((logp_b - logp_a) / self.temperature, -700, 700)))), longest

    def _letter(self, letter: str, sampler: Sampler) -> int:
        """The token of a letter. Raises `UserError` for one of several tokens."""
        ids = sampler.encode(letter)[len(sampler.encode("")) :]
        if len(ids) != 1:
            raise UserError(
                f"the letter '{letter}' is {len(ids)} tokens of the model in the role '{self.role}', and a comparison "
                "reads the log-probability of one: the first of several is also that of other words. Take a model "
                "whose vocabulary has the letters A and B, or the reward principle_logit, whose words may be longer"
            )
        return int(ids[0])


def prompt_text(task: Task) -> str:
    """The prompt as one text."""
    return task.prompt if isinstance(task.prompt, str) else "\n".join(message["content"] for message in task.prompt)
