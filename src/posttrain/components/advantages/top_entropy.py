"""Another advantage, for the tokens of a step at which the policy was least sure what comes next; 0 for all others.

Source: Wang et al. 2025 ("Beyond the 80/20 rule"), arXiv:2506.01939: the policy-gradient loss of the 20 % of tokens
with the highest entropy. A token without an advantage has no gradient from the objective; penalties still see it, as
in the paper. With `beside`, the metric ``overlap`` is the share of the chosen tokens that another model (the one that
training began with, say) would have chosen too, section 3 of the paper.

Differs: the release ranks the tokens of each micro-batch by their entropy at every update; here those of the whole step
are ranked, once, by the entropy of the policy that the step begins with, so that how a step is cut into micro-batches
changes nothing. With one update a step both entropies are the same. Tokens as uncertain as the last one that is kept
are all kept: attempts that begin alike are equally uncertain there, and without some of them the comparison would tilt.
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
    """Keeps the credit of the most uncertain tokens."""

    advantage: Advantage
    """What gives credit."""
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """Of the tokens, in [0, 1], rounded up, at least one, and those that are equal to the last (0.2 in the paper)."""
    which: Literal["highest", "lowest"] = "highest"
    """Tokens of the highest or the lowest entropy (with a share of 0.8: the paper's ablation)."""
    scope: Literal["step", "sequence"] = "step"
    """Among which tokens: all of the step's, or those of each attempt."""
    mean: Literal["kept", "all"] = "kept"
    """Tokens that the loss is a mean over: ``kept`` raises their advantages by the number of all over that of the kept
    (the release), ``all`` leaves them as they are (the trl library)."""
    beside: str | None = None
    """Role whose choice is compared with the policy's; None compares nothing."""

    @property
    def needs(self) -> frozenset[Signal]:
        """What gives credit needs, the policy's entropies before the update, and those of the role beside it."""
        needs = self.advantage.needs | {OLD_ENTROPY}
        return needs if self.beside is None else needs | {Signal("entropy", of=self.beside)}

    def start(self) -> State:
        """That of what gives credit."""
        return self.advantage.start()

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Give credit, and take it from all but the chosen tokens."""
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
