"""A share of imitation that is learned: it follows the slope of a validation utility, and the entropy of the policy.

Source: AMFT, arXiv:2508.06944, as a third party reports it; the paper is WITHDRAWN and its code is gone, so that only
the idea is kept. The loss is mu times that of imitation plus 1 - mu times that of reinforcement, and after each step
mu <- mu + eta_mu dU/dmu + eta_H (H - H*), within bounds. With theta' = theta - lr (mu g_sft + (1 - mu) g_rl) and the
utility U = -L_val, dU/dmu is lr <grad L_val(theta'), g_sft - g_rl>; ``validation_slope`` is that without lr.

Differs: the estimator of the paper is unknown. The sign of its entropy term contradicts its words: by intent, too high
an entropy raises mu; as reported, it lowers mu. H* is the mean entropy of the first steps after the warm-up, since
nothing is sampled in the warm-up. The slope is that of plain gradient descent, whatever the optimizer. L_val is the
imitation loss of validation demonstrations.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.balances import Balance, Shares, State
from posttrain.components.tasks import Tasks

Share = Annotated[float, Field(ge=0.0, le=1.0)]
STEPS_OF_MEAN = 5
"""Steps after the warm-up whose mean entropy is H*."""


@frozen
class MetaGradient(Balance):
    """mu by a controller."""

    mu: Share = 0.5
    """mu after the warm-up."""
    rate: NonNegativeFloat = 0.02
    """eta_mu, per unit of the slope without the learning rate; the paper's is unknown."""
    entropy_rate: NonNegativeFloat = 0.02
    """eta_H, per nat; the paper's is unknown."""
    entropy_sign: Literal["intent", "reported"] = "intent"
    """``intent``: an entropy above H* raises mu; ``reported``: it lowers mu."""
    bounds: tuple[Share, Share] = (0.05, 0.95)
    """Smallest and largest mu; within (0, 1), since a part with the share 0 has no gradient to compare."""
    warmup: NonNegativeInt = 10
    """Steps of imitation alone at the start."""
    batch: PositiveInt = 16
    """Demonstrations of the validation in each step."""
    tasks: Tasks | None = None
    """Where these are from; None takes the tasks of the experts."""

    @model_validator(mode="after")
    def check_bounds(self) -> Self:
        """Refuse bounds that mu does not lie between."""
        if not self.bounds[0] <= self.mu <= self.bounds[1]:
            raise PydanticCustomError("mu", "mu is not within its bounds, the smaller one first")
        return self

    @property
    def validated(self) -> int:
        """The setting `batch`."""
        return self.batch

    @property
    def source(self) -> Tasks | None:
        """The setting `tasks`."""
        return self.tasks

    def start(self) -> State:
        """State before the first step."""
        return {"mu": self.mu, "entropies": []}

    def shares(self, state: State, *, seed: int, step: int, steps: int) -> Shares:
        """1 - mu and mu; imitation alone in the warm-up."""
        mu = 1.0 if step < self.warmup else state["mu"]
        return Shares(sampled=1.0 - mu, demonstrated=mu)

    def observe(self, state: State, measured: Mapping[str, float]) -> State:
        """Move mu; a step without a slope or an entropy is one without that term."""
        entropies, entropy = state["entropies"], measured.get("entropy")
        if entropy is not None and len(entropies) < STEPS_OF_MEAN:
            return {**state, "entropies": [*entropies, entropy]}
        change = self.rate * measured.get("validation_slope", 0.0)
        if entropy is not None:
            excess = entropy - sum(entropies) / len(entropies)
            change += self.entropy_rate * (excess if self.entropy_sign == "intent" else -excess)
        return {**state, "mu": min(max(state["mu"] + change, self.bounds[0]), self.bounds[1])}
