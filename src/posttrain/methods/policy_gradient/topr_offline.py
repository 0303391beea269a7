"""TOPR offline: learn from completions that somebody else wrote and rated, without ever sampling.

Source: Le Roux et al. 2025, arXiv:2503.14286, single offline iterations. The data is taken to come from the policy as
it begins (mu is a frozen copy). For ratings of 1 and 0, `advantage.baseline=0.5`.

Differs: the data is generated: sums worked out right (+1), and with a slip in the working (-1). It is gone through step
by step, so that the ratio is taken where the policy is by then.

Measured here: five seeds at rate 1e-3, from 19 % held-out accuracy: 69.0 %, with negatives at their full weight 4.6 %
(TOPR is higher by 64.4 points [55.2, 73.6]), with positives only 74.6 %: what tapering prevents is seen, what negatives
add is not (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.methods.policy_gradient.topr import tapered
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.rated_workings import rated_workings

PARENT: Final = "topr"
SETTING: Final = "rated_workings"
PAPER: Final = "arXiv:2503.14286"
ROWS: Final = (99,)


def topr_offline(recipe: Recipe | None = None) -> Recipe:
    """A change to TOPR: ratings as they are, each batch gone through once."""
    recipe = recipe or rated_workings()
    return with_stage(replace(recipe, name="topr_offline"), tapered(rl_of(recipe)))
