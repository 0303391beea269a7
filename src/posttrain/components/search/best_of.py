"""Best of n: independent attempts, of which the one with the highest value is the answer.

Source: Stiennon et al. 2020, arXiv:2009.01325, section 4.3 (best-of-n, by a reward model).

Differs: nothing known. It is what a tree search has to beat at the same number of samples.
"""

from collections.abc import Mapping

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Judge
from posttrain.components.search import Found, Search
from posttrain.components.search._attempts import Values, found, judged, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.signals import Signal
from posttrain.types import Segment, Task, Trajectory


@frozen
class BestOf(Search):
    """`n` attempts, and the best by value."""

    n: PositiveInt = 8
    """Attempts."""
    value_role: str | None = "value"
    """The model with a reward head that values them; None takes the reward itself, which makes data, not answers."""
    sampling: Sampling = Sampling()
    """How each is drawn."""
    role: str = "policy"
    """The model that writes."""

    @property
    def roles(self) -> frozenset[str]:
        """Writer and value model."""
        return frozenset(filter(None, (self.role, self.value_role)))

    @property
    def needs(self) -> frozenset[Signal]:
        """What the value model says of whole attempts."""
        return frozenset() if self.value_role is None else frozenset({Signal("score", of=self.value_role)})

    @property
    def judges(self) -> bool:
        """Only without a value model."""
        return self.value_role is None

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    async def search(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge | None = None) -> Found:
        """Sample, value, choose."""
        sampler = sampler_of(self.role, samplers)
        prompt = sampler.prompt(task)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling)
        attempts: tuple[Trajectory, ...] = tuple(
            Trajectory(
                task=task,
                segments=(
                    prompt,
                    Segment(
                        actor=self.role,
                        token_ids=c.token_ids,
                        trained=True,
                        logp=c.logp,
                        version=c.version,
                        text=c.text,
                    ),
                ),
                stop_reason=c.stop_reason,
                sample=i,
            )
            for i, c in enumerate(completions)
        )
        if self.value_role is None:
            attempts = await judged(task, attempts, judge)
            return found(attempts, [t.score.value for t in attempts if t.score is not None])
        values = Values(sampler_of(self.value_role, samplers))
        return found(attempts, await values([t.token_ids for t in attempts]))
