"""Rated workings: learning offline from workings that somebody else wrote, right ones rated +1 and slips -1.

They are taken to come from the policy as it begins, of which a frozen copy is kept. `tasks=FILE` brings data of one's
own: a row with a prompt, a completion and a rating each. Held-out tasks are answered by the policy and matched.
"""

from dataclasses import replace

from posttrain.components.rewards.match import Match
from posttrain.components.rewards.rating import Rating
from posttrain.components.rollouts.recorded import Recorded
from posttrain.components.tasks.unpaired import Unpaired
from posttrain.components.tasks.workings import Workings
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def rated_workings() -> Recipe:
    """Sums worked out right, and with a slip in the working, in 60 steps of 32."""
    recipe = arithmetic()
    stage = rl_of(recipe)
    recipe = replace(
        recipe,
        name="rated_workings",
        tasks=Unpaired(tasks=Workings(size=2000, terms=(3, 4))),
        evaluation=replace(recipe.evaluation, verifier=Match(), sampling=sampling_of(stage)),
    )
    recipe = with_models(recipe, {"behavior": Model(source="role:policy")})
    return with_stage(recipe, replace(stage, steps=60, prompts=32, rollout=Recorded(), reward=Rating()))
