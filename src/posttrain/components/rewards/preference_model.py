"""Pairwise preferences of a model: the mean probability that it prefers a rollout to the others of its group.

Source: the pairwise preference model of RLHF Workflow, Dong et al. 2024, arXiv:2405.07863, section 2.2, and its
released code (github.com/RLHFlow/RLHF-Reward-Modeling, pair-pm). The model reads the prompt and both responses and
names the better one by a letter. With l the log-probability of a letter, and averaged over both orders of the two:

    p(first is better) = exp(l_A / T) / (exp(l_A / T) + exp(l_B / T))

At an endpoint the letters are looked up in its likeliest first tokens (``top_logprobs``).

Differs: all pairs of rollouts are compared, where the authors suggest a tournament for large groups.
"""

import asyncio
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.templates import marked
from posttrain.engines import Labelling, Sampler, next_logp
from posttrain.errors import NoAnswer
from posttrain.signals import Signal, logp_of
from posttrain.types import Group, Message, Score, Task, Trajectory

QUESTION = "[CONTEXT] {context} [RESPONSE A] {first} [RESPONSE B] {second}\n"


@frozen
class PreferenceModel(Reward):
    """Mean probability of being preferred; one half for a rollout without others."""

    role: str = "judge"
    """Role of the language model that compares."""
    temperature: PositiveFloat = 1.0
    """T: a higher temperature gives probabilities closer to one half."""
    marks: bool = False
    """Whether both responses stand between marks that they cannot contain, for a model that was not trained on the
    published form: without marks a response can write what separates it from the other."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that compares."""
        return frozenset({self.role})

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
        first_NN = np.full((count, count), 0.5)
        for (i, j), probability in zip(orders, await asyncio.gather(*requests), strict=True):
            first_NN[i, j] = probability
        better_NN = (first_NN + 1.0 - first_NN.T) / 2
        values = (better_NN.sum(1) - 0.5) / (count - 1) if count > 1 else np.full(count, 0.5)
        return [self._score(float(value), count) for value in values]

    def _score(self, value: float, count: int) -> Score:
        """The score of a mean probability, NaN where a comparison has no answer."""
        if np.isnan(value):
            return failure(f"the endpoint of role '{self.role}' names no letter in a comparison with this rollout")
        explanation = f"the role '{self.role}' prefers it to {value:.0%} of {count - 1} others"
        return Score(value=value, status="ok" if value >= 0.5 else "wrong", explanation=explanation)

    async def _first_is_better(self, sampler: Sampler, first: Trajectory, second: Trajectory) -> float:
        """Probability that the model prefers the first of two responses, shown in this order; NaN without an answer."""
        one, other = (marked(t.completion) if self.marks else t.completion for t in (first, second))
        text = QUESTION.format(context=prompt_text(first.task), first=one, second=other)
        prompt = (Message(role="user", content=text),)
        if isinstance(sampler, Labelling):
            try:
                logp_a, logp_b = await sampler.label_logp(prompt, "AB")
            except NoAnswer:
                return float("nan")
        else:
            letters = [int(sampler.encode(letter)[-1]) for letter in "AB"]
            logp_a, logp_b = await next_logp(sampler, sampler.encode(prompt), letters)
        return float(1 / (1 + np.exp(np.clip((logp_b - logp_a) / self.temperature, -700, 700))))


def prompt_text(task: Task) -> str:
    """The prompt as one text."""
    return task.prompt if isinstance(task.prompt, str) else "\n".join(message["content"] for message in task.prompt)
