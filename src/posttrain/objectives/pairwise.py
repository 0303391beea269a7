"""A preference loss between the attempts of a group: whichever has the higher advantage is the chosen one of each two.

Source: online DPO as in Dong et al. 2024, arXiv:2405.07863, section 4, where each group is the best and the worst of
the attempts at one prompt.

Differs: groups of more than two are allowed; a group's loss is the mean over its pairs, and a tie is no pair.
"""

from typing import ClassVar

from posttrain.component import frozen
from posttrain.objectives import Objective
from posttrain.preferences import PreferenceLoss, compare
from posttrain.types import PerToken, Tokens


@frozen
class Pairwise(Objective):
    """Losses of `posttrain.preferences` on what was just sampled; only the order of the advantages counts."""

    whole_groups: ClassVar[bool] = True
    exceptions: ClassVar[frozenset[str]] = frozenset({"reinforce"})

    loss: PreferenceLoss
    """Of each pair."""

    @property
    def needs(self) -> frozenset[str]:
        """Those of the preference loss."""
        return self.loss.needs

    def __call__(self, tokens: Tokens) -> PerToken:
        """[T] the mean loss of the pairs in each token's group."""
        return compare(self.loss, tokens)
