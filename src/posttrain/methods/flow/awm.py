"""AWM: RL of a flow by advantage-weighted flow matching on its own samples.

Source: Advantage Weighted Matching, Xue et al. 2025, arXiv:2509.25050, with the settings of its released runs: groups
of 24, six noise draws per sample, the generalized Huber transform of the error, advantages over the std of the whole
batch and clipped to +-1, velocity regularizer 0.001 towards the initial model, deterministic sampling, groups of equal
rewards kept. A slow average of the weights samples, gives the old values of the ratios on the same draws, and is a
second velocity regularizer, of weight 1: a trust region. Its decay after step n is min(0.3, 0.001 n), so that early on
it nearly equals the policy.

    posttrain run awm tasks=mine.jsonl reward=mine.py:score    # columns: prompt, completion (a point: 0.3 -1)

On its own samples and values: `rollout.role=policy rl.objective.old=null penalties.average.coefficient=0`.

Differs: a flow in the plane in place of SD 3.5 with adapters.

Measured here, on its own samples and values: against DDPO at as many samples (30 steps, rate 1e-3, 5 seeds) the mean
training reward is higher, 0.733 against 0.673, +0.061 [+0.032, +0.090], but fewer deterministic samples are in the
rewarded mode at the end, 88.4 % against 99.9 %, -11.5 points [-14.0, -9.0]. AWM samples without noise in the steps,
DDPO with it (docs/experiments.md). With the slow average, the same seeds: training reward 0.734 against 0.673, +0.061
[+0.033, +0.090], and 88.7 % in the rewarded mode at the end against 99.9 %, -11.2 points [-14.0, -8.4].
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.bounded import Bounded
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.hooks.ema import EMA
from posttrain.components.objectives.matching import Matching
from posttrain.components.penalties.velocity import Velocity
from posttrain.components.rollouts.renoised import Renoised
from posttrain.methods.flow.ddpo import ddpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rollouts_of, sampled_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_modes import two_modes

PARENT: Final = "ddpo"
SETTING: Final = "two_modes"
PAPER: Final = "arXiv:2509.25050"
ROWS: Final = (109,)
# Sampling is deterministic, since the loss draws its own noise.
CHANGES: Final = ("models.policy.shape.noise", "rollout.sampling.temperature")


def awm(recipe: Recipe | None = None) -> Recipe:
    """A change to DDPO: the loss is flow matching on final samples with fresh noise, not on sampling steps."""
    recipe = ddpo(recipe or two_modes())
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Renoised(n=rollouts_of(stage), sampling=replace(sampling_of(stage), temperature=0.0), role="average"),
        filters=every_group(stage),
        advantage=Bounded(of=GroupMean(scale="batch", epsilon=1e-4)),
        objective=Matching(old="average"),
        penalties={**stage.penalties, "reference": Velocity(), "average": Velocity(coefficient=1.0, role="average")},
        hooks={**stage.hooks, "average": EMA(target="average", decay=0.3, ramp=0.001)},
    )
    copies = {"reference": Model(source="role:policy"), "average": Model(source="role:policy")}
    recipe = with_models(replace(recipe, name="awm"), copies)
    return with_stage(recipe, stage)
