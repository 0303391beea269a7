"""KL divergence from a reference, estimated from the log-probabilities of sampled tokens.

Source: Schulman 2020, "Approximating KL Divergence" (joschu.net/blog/kl-approx.html). With d = log p - log reference:
k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d. The mean of k1 and of k3 over samples of p is KL(p || reference); that of k2
is near it while p is near the reference.

In the loss the gradient counts, and the gradient of an estimate is not an estimate of the gradient. Averaged over
samples of p, the gradient of k1 is 0 (it only adds noise), that of k2 is the gradient of
KL(p || reference), and that of k3, the term of GRPO (arXiv:2402.03300, equation 4), is the gradient of
KL(reference || p). In the reward nothing is differentiated, and k1 gives the gradient of KL(p || reference).

With a teacher as the reference this is on-policy distillation. Annealing the weight (`final`) and restricting it to
incorrect rollouts (`rollouts`) are from KDRL, arXiv:2506.02208. A second line after the first one (`after`) is from
OThink-MR1, arXiv:2503.16081. All three hold for the loss only.

Differs: in k3, d is held above -20, so that the exponential stays finite; beyond it the term has no gradient. Other
rollouts have a term of 0 and still count as tokens where the loss is averaged.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, TypeVar

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import Signal, logp_of
from posttrain.types import FloatArray, PerToken, Tokens, Trajectory

if TYPE_CHECKING:
    import torch

Share = Annotated[float, Field(gt=0.0, le=1.0)]
Array = TypeVar("Array", "torch.Tensor", "FloatArray")

MAX_LOG_RATIO = 20.0


@frozen
class KL(Penalty):
    """Estimated KL divergence from a reference model."""

    RENAMED: ClassVar = {"attempts": "rollouts"}

    coefficient: NonNegativeFloat = 0.04
    """Weight of the divergence, in units of reward per nat (0.04: section 4.2 of the DeepSeekMath paper)."""
    form: Literal["k1", "k2", "k3"] = "k3"
    """The estimator."""
    where: Literal["loss", "reward"] = "loss"
    """``loss`` adds the estimate to each token's loss; ``reward`` subtracts it from each token's reward."""
    role: str = "reference"
    """The reference model."""
    final: NonNegativeFloat | None = None
    """Weight at the end of a straight line from `coefficient`; None keeps it constant."""
    until: Share = 1.0
    """Share of the stage in which the weight changes to `final`, in (0, 1]; it then stays if there is no `after`."""
    after: NonNegativeFloat | None = None
    """Weight at the end of the stage, on a second straight line from `final`; None stays at `final`."""
    rollouts: Literal["all", "wrong", "unsolved"] = "all"
    """Rollouts that it holds for: all, incorrect ones, or those of groups without a correct one."""

    @model_validator(mode="after")
    def check_reward(self) -> Self:
        """Refuse settings that hold for the loss only."""
        if self.where == "reward" and (self.final is not None or self.rollouts != "all"):
            raise PydanticCustomError("where", "final and rollouts hold for a KL in the loss; set where to 'loss'")
        return self

    @model_validator(mode="after")
    def check_lines(self) -> Self:
        """Refuse a second line without a first one, or without a share of the stage."""
        if self.after is not None and (self.final is None or self.until == 1.0):
            raise PydanticCustomError("after", "after is where a line from final leads: set final, and until below 1")
        return self

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities."""
        return frozenset({logp_of(self.role)})

    @property
    def acts_in_loss(self) -> bool:
        """As `where`."""
        return self.where == "loss"

    @property
    def follows_progress(self) -> bool:
        """The coefficient changes over the stage where `final` is set."""
        return self.final is not None

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] coefficient times the estimate under the weights being trained; the metrics are the bare estimate, and
        the coefficient where it changes.
        """
        if self.where != "loss":
            return None
        import torch

        estimate_T = self._estimate(tokens.logp_T - tokens[logp_of(self.role)], torch.expm1)
        coefficient = self._coefficient(tokens.progress)
        metrics = {"estimate": estimate_T.detach()}
        if self.final is not None:
            metrics["coefficient"] = estimate_T.new_full((1,), coefficient)
        loss_T = coefficient * estimate_T
        if self.rollouts != "all":
            solved_N = tokens.solved_N if self.rollouts == "wrong" else tokens.group_solved_N
            metrics["share"] = (solved_N == 0).to(loss_T.dtype)
            loss_T = loss_T * metrics["share"][tokens.sequence_T]
        return PerToken(loss_T=loss_T, metrics=metrics)

    def in_reward(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray | None:
        """[T] minus coefficient times the estimate when the tokens were sampled; 0 for tokens that were not sampled."""
        if self.where != "reward":
            return None
        estimate_T = self._estimate(trajectory.behavior_logp - signals[logp_of(self.role)], np.expm1)
        estimate_T[np.isnan(trajectory.behavior_logp)] = 0.0
        return np.asarray(-self.coefficient * estimate_T, np.float32)

    def _coefficient(self, progress: float) -> float:
        """The weight at a progress of the stage."""
        if self.final is None:
            return self.coefficient
        if self.after is None or progress <= self.until:
            return self.coefficient + (self.final - self.coefficient) * min(progress / self.until, 1.0)
        return self.final + (self.after - self.final) * min((progress - self.until) / (1.0 - self.until), 1.0)

    def _estimate(self, d_T: Array, expm1: Callable[[Array], Array]) -> Array:
        """[T] estimate of each token."""
        if self.form == "k1":
            return d_T
        if self.form == "k2":
            return 0.5 * d_T**2
        held_T: Array = d_T.clip(min=-MAX_LOG_RATIO)
        return expm1(-held_T) + held_T
