"""CHORD-phi: CHORD with a constant share of imitation, and a weight p (1 - p) of each token of the experts.

Source: Zhang et al. 2025, arXiv:2508.11408, and its release: mu is 0.1 throughout, and a token of an expert that the
policy gives the probability p has the weight p (1 - p), which is not differentiated and not normalised. Tokens that the
policy finds very unlikely, or certain, change it little.

    posttrain run chord_phi tasks=mine.jsonl experts=solutions.jsonl    # columns: prompt, answer; prompt, completion

Differs: as ``chord``.

Measured here: two families (60 steps of 32 x 4, 5 seeds): held-out letters 0 % in every seed, as with GRPO, where CHORD
has 20.0 %: the letters begin as very unlikely tokens, whose weight is next to nothing. Sums 67.6 %. That it keeps the
entropy higher does not show: 0.025 nats at the end, CHORD 0.122, GRPO 0.036 (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.balances.fixed import Fixed
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.objectives.likelihood import Likelihood
from posttrain.methods.sft_rl.chord import chord
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_families import two_families

PARENT: Final = "chord"
SETTING: Final = "two_families"
PAPER: Final = "arXiv:2508.11408"
ROWS: Final = (70,)


def chord_phi(recipe: Recipe | None = None) -> Recipe:
    """A change to CHORD: a constant balance, and weights of tokens."""
    recipe = chord(recipe or two_families())
    stage = rl_of(recipe)
    assert isinstance(stage.objective, ByOrigin), "chord sets it"
    objective = replace(stage.objective, demonstrated=Likelihood(weight="undecided"))
    return with_stage(replace(recipe, name="chord_phi"), replace(stage, balance=Fixed(), objective=objective))
