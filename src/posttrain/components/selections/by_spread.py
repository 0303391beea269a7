"""Orders tasks once by the spread of a reward over rollouts of each: the highest first.

Source: Qwen2.5, arXiv:2412.15115: queries of the last stage are processed in the order of the variance of a reward
model's scores of their answers, high variance first, 8 answers a query. The order of standard deviations is the same.

Tasks of which all rollouts score alike are last, and so are those of which fewer than two could be scored; equal ones
keep their order. The order is measured when the stage begins and then fixed; the curriculum ``in_order`` follows it. A
`keep` below 1 drops the end of it, for a curriculum of another order.

Differs: whether the paper measures again during training is not known.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import sample_all, values_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Task


@frozen
class BySpread(Selection):
    """Sorts tasks by the standard deviation of their scores."""

    reward: Reward
    """Scores the rollouts."""
    n: Annotated[int, Field(ge=2, le=256)] = 8
    """Rollouts at each task."""
    temperature: PositiveFloat = 1.0
    """Of the rollouts."""
    max_tokens: PositiveInt = 64
    """Longest rollout."""
    first: PositiveInt | None = None
    """Number of tasks that are measured, from the first; the others are left out. None measures all."""
    keep: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the tasks that are kept, those of the highest spread; at least one."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, and those of the reward."""
        return frozenset({"policy"}) | self.reward.roles

    @property
    def orders(self) -> bool:
        """True."""
        return True

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each of the first tasks the std of its scores; None where fewer than two could be scored."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        groups = await sample_all(
            tasks[: self.first], samplers, self.reward, role="policy", n=self.n, sampling=sampling, kind=self.kind
        )
        scores = [values_of(group) for group in groups]
        # Equal scores give 0 exactly only where nothing is subtracted that was rounded.
        return [
            None if len(own) < 2 else 0.0 if len(set(own)) == 1 else float(np.std(own, dtype=np.float64))
            for own in scores
        ]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks by falling spread."""
        tasks = tasks[: self.first]
        order = sorted(range(len(tasks)), key=lambda i: (measured[i] is None, -(measured[i] or 0.0)))
        kept = order[: max(1, round(self.keep * len(tasks)))]
        spreads = [measured[i] for i in kept if measured[i]]
        unlike = f"from {max(spreads):.3g} to {min(spreads):.3g}" if spreads else "0 everywhere"
        equal = sum(measured[i] == 0.0 for i in range(len(tasks)))
        missing = sum(spread is None for spread in measured)
        return Chosen(
            tasks=[tasks[i] for i in kept],
            summary=(
                f"{len(kept)} of {len(tasks)} tasks by falling spread of '{self.reward.kind}' over {self.n} rollouts, "
                f"{unlike}; {equal} with equal scores are last"
                + (f", and {missing} that could not be scored" if missing else "")
            ),
        )
