"""Another advantage, kept for the tokens of a step with the highest entropy and 0 for all others.

Source: Wang et al. 2025 ("Beyond the 80/20 rule"), arXiv:2506.01939: the policy-gradient loss of the 20 % of tokens
with the highest entropy. A token without an advantage has no gradient from the objective; penalties still hold for
it, as in the paper. With `beside`, the metric ``overlap`` is the share of the chosen tokens that another model (such as
the initial one) would choose too, section 3 of the paper.

Differs: the release ranks the tokens of each micro-batch by their entropy at every update; here those of the whole step
are ranked once, by the entropy of the policy at the start of the step, so that the result does not depend on the
micro-batches. With one update per step both entropies are the same. Tokens with the same entropy as the last kept one
are all kept: rollouts with a common prefix have equal entropies there, and dropping some would bias the comparison.
`objectives/top_entropy` chooses within each sequence, by the weights being trained.
"""

import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.signals import OLD_ENTROPY, Signal
from posttrain.types import Batch, Credit, FloatArray

Kept = NDArray[np.bool_]


@frozen
class TopEntropy(Advantage):
    """Keeps the credit of the tokens with the highest entropy."""

    advantage: Advantage
    """The estimator whose credit is kept."""
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """Share of the tokens, in [0, 1] (0.2 in the paper): rounded up, at least one, and all of equal entropy."""
    which: Literal["highest", "lowest"] = "highest"
    """Tokens of the highest or the lowest entropy (with a share of 0.8: the paper's ablation)."""
    scope: Literal["step", "sequence"] = "step"
    """Tokens that are ranked together: all of the step, or those of each rollout."""
    mean: Literal["kept", "all"] = "kept"
    """Tokens that the loss is a mean over: ``kept`` multiplies their advantages by the number of all tokens over that
    of the kept ones (the release), ``all`` does not change them (the trl library)."""
    beside: str | None = None
    """Role whose choice is compared with the policy's; None compares nothing."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the estimator, the policy's entropies before the update, and those of the role `beside`."""
        needs = self.advantage.needs | {OLD_ENTROPY}
        return needs if self.beside is None else needs | {Signal("entropy", of=self.beside)}

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the estimator."""
        return self.advantage.tags

    def start(self) -> State:
        """State of the estimator."""
        return self.advantage.start()

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compute the credit, and set it to 0 for all but the chosen tokens."""
        state, credit = self.advantage(state, batch)
        kept = self._kept(batch, OLD_ENTROPY)
        advantages, metrics = credit.advantages, dict(credit.metrics)
        if any(len(kept_T) for kept_T in kept):
            kept_T, entropy_T = np.concatenate(kept), np.concatenate(batch.signals[OLD_ENTROPY])
            metrics["kept_entropy"] = float(entropy_T[kept_T].mean(dtype=np.float64))
            if not kept_T.all():
                metrics["left_out_entropy"] = float(entropy_T[~kept_T].mean(dtype=np.float64))
            if self.beside is not None:
                beside = self._kept(batch, Signal("entropy", of=self.beside))
                metrics["overlap"] = float(np.concatenate(beside)[kept_T].mean())
            factor = 1.0 / kept_T.mean() if self.mean == "kept" else 1.0
            advantages = tuple((a * factor * k).astype(np.float32) for a, k in zip(advantages, kept, strict=True))
        return state, Credit(advantages=advantages, value_targets=credit.value_targets, metrics=metrics)

    def _kept(self, batch: Batch, signal: Signal) -> list[Kept]:
        """For each trajectory, [T] whether a token is chosen."""
        entropies = batch.signals[signal]
        if self.scope == "sequence":
            return [self._chosen(entropy_T) for entropy_T in entropies]
        chosen_T = self._chosen(np.concatenate([np.zeros(0, np.float32), *entropies]))
        return np.split(chosen_T, np.cumsum([len(entropy_T) for entropy_T in entropies])[:-1])

    def _chosen(self, entropy_T: FloatArray) -> Kept:
        """[T] whether each of these tokens is among the share of them that is kept."""
        if not len(entropy_T):
            return np.zeros(0, bool)
        rank_T = entropy_T if self.which == "highest" else -entropy_T
        # Rounded first: 0.07 * 100 is a little above 7 otherwise.
        count = max(math.ceil(round(self.share * len(rank_T), 6)), 1)
        return np.asarray(rank_T >= np.sort(rank_T)[-count])
