"""Best of n: of independent rollouts, the one with the highest value is the answer.

Source: Stiennon et al. 2020, arXiv:2009.01325, section 4.3 (best-of-n, by a reward model).

Differs: nothing known. It is the baseline of a tree search at the same number of samples.
"""

from collections.abc import Mapping

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Scorer
from posttrain.components.search import Found, Search
from posttrain.components.search._found import Values, found, sampler_of, scored
from posttrain.engines import Sampler, Sampling, answers
from posttrain.signals import Signal
from posttrain.types import Task


@frozen
class BestOf(Search):
    """Samples `n` rollouts and takes the best by value."""

    n: PositiveInt = 8
    """Rollouts per task."""
    value_role: str | None = "value"
    """The model with a reward head that gives values. None takes the reward, for making data only."""
    sampling: Sampling = Sampling()
    """How each rollout is sampled."""
    role: str = "policy"
    """The model that is sampled from."""

    @property
    def roles(self) -> frozenset[str]:
        """The sampled model and the value model."""
        return frozenset(filter(None, (self.role, self.value_role)))

    @property
    def needs(self) -> frozenset[Signal]:
        """The value model's scores of complete rollouts."""
        return frozenset() if self.value_role is None else frozenset({Signal("score", of=self.value_role)})

    @property
    def uses_rewards(self) -> bool:
        """True without a value model."""
        return self.value_role is None

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def search(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer | None = None) -> Found:
        """Sample rollouts and compute their values."""
        sampler = sampler_of(self.role, samplers)
        prompt = sampler.prompt(task)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling)
        rollouts = answers(task, prompt, completions, self.role)
        if self.value_role is None:
            rollouts = await scored(task, rollouts, scorer)
            return found(rollouts, [t.score.value for t in rollouts if t.score is not None])
        values = Values(sampler_of(self.value_role, samplers))
        return found(rollouts, await values([t.token_ids for t in rollouts]))
