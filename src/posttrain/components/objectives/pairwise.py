"""A preference loss on pairs of a group's rollouts; the one with the higher advantage is the chosen one.

Source: online DPO as in Dong et al. 2024, arXiv:2405.07863, section 4, where each group is the best and the worst of
the rollouts of one prompt. The margin that a loss reads is the difference of the rewards.

Differs: groups of more than two are allowed; a group's loss is the mean over its pairs, and a tie is no pair. Of a
larger group only the ``extremes`` may be compared, as where rollouts that are in no pair are learned from in another
way (SELM, arXiv:2405.19332). With `gap` only rollouts whose rewards are further apart are a pair (theta of Agent Q,
arXiv:2408.07199).
"""

from typing import ClassVar, Literal

from pydantic import NonNegativeFloat, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.components.preferences import PreferenceLoss, compare, extremes_in, pairs_in
from posttrain.signals import Signal
from posttrain.types import PerToken, Tokens


@frozen
class Pairwise(Objective):
    """Preference loss on sampled pairs; only the order of the advantages counts."""

    whole_groups: ClassVar[bool] = True
    exceptions: ClassVar[frozenset[str]] = frozenset({"reinforce"})

    loss: PreferenceLoss
    """Of each pair."""
    pairs: Literal["all", "extremes"] = "all"
    """Which pairs of a group are compared: all that differ, or the best with the worst, the first one of equals."""
    gap: NonNegativeFloat = 0.0
    """Theta: rewards of a pair differ by more than this; 0 compares all that differ."""

    @field_validator("loss")
    @classmethod
    def check_reads(cls, loss: PreferenceLoss) -> PreferenceLoss:
        """Refuse a loss that reads numbers which sampled pairs do not have."""
        if missing := sorted(loss.reads - {"margin"}):
            context = {"kind": loss.kind, "missing": ", ".join(missing)}
            raise PydanticCustomError("reads", "the loss '{kind}' reads {missing}, which sampled pairs lack", context)
        return loss

    @property
    def needs(self) -> frozenset[Signal]:
        """Those of the preference loss."""
        return self.loss.needs

    def __call__(self, tokens: Tokens) -> PerToken:
        """[T] the mean loss of the pairs in each token's group."""
        pair_P2 = pairs_in(tokens) if self.pairs == "all" else extremes_in(tokens)
        if self.gap:
            reward_P2 = tokens.reward_N[pair_P2]
            pair_P2 = pair_P2[(reward_P2[:, 0] - reward_P2[:, 1]).abs() > self.gap]
        return compare(self.loss, tokens, pair_P2)
