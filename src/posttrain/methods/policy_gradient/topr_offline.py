"""TOPR offline: learn from completions that somebody else wrote and rated, without ever sampling.

Source: Le Roux et al. 2025, arXiv:2503.14286, single offline iterations. The data is taken to come from the policy as
it begins (mu is a frozen copy). `tasks=FILE` brings data of one's own: a row with a prompt, a completion and a rating
each; for ratings of 1 and 0, `advantage.baseline=0.5`.

Differs: the data is generated: sums worked out right (+1), and with a slip in the working (-1). It is gone through step
by step, so that the ratio is taken where the policy is by then. Sizes are for the bundled model.

Measured here: five seeds at rate 1e-3, from 19 % held-out accuracy: 69.0 %, with negatives at their full weight 4.6 %
(TOPR is higher by 64.4 points [55.2, 73.6]), with positives only 74.6 %: what tapering prevents is seen, what negatives
add is not (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.match import Match
from posttrain.components.rewards.rating import Rating
from posttrain.components.rollouts.recorded import Recorded
from posttrain.components.tasks.unpaired import Unpaired
from posttrain.components.tasks.workings import Workings
from posttrain.methods.policy_gradient.topr import topr
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sampling_of, with_models, with_stage
from posttrain.recipe.tree import Recipe

ROWS: Final = (99,)


def topr_offline(recipe: Recipe | None = None) -> Recipe:
    """A change to TOPR: rated data in the place of samples, and a copy of the first policy to measure the ratio by."""
    recipe = recipe or topr()
    stage = rl_of(recipe)
    evaluation = replace(recipe.evaluation, verifier=Match(), sampling=sampling_of(stage))
    recipe = with_models(recipe, {"behavior": Model(source="role:policy")})
    recipe = replace(
        recipe, name="topr_offline", tasks=Unpaired(tasks=Workings(size=2000, terms=(3, 4))), evaluation=evaluation
    )
    stage = replace(
        stage,
        steps=60,
        prompts=32,
        rollout=Recorded(),
        reward=Rating(),
        learner=replace(stage.learner, epochs=1, minibatches=1),
    )
    return with_stage(recipe, stage)
