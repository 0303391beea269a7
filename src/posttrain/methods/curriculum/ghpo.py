r"""GHPO: GRPO in which a group that fails is sampled again with a quarter, a half, three quarters of its solution.

Source: Liu et al. 2025, arXiv:2507.10628, and its release (hkgc-1/GHPO at af0a7dd). The trigger is that no rollout is
correct, whatever its format; the ladder is climbed within the step, and the last group is kept. PPO's clip at 0.2, the
mean over all tokens of the step, no KL, every group is kept: with a format reward an all-wrong group still teaches.

    posttrain run ghpo tasks=mine.jsonl model=FOLDER 'rollout.request="{question}\nBeginning of the answer: {hint}"'
    # columns: prompt, answer, completion (a worked solution; or any column, named by rollout.column)

The paper's first 20 steps are without hints: `rollout.start=0.2` of a hundred. Its control with a fixed half:
`rollout.when=always rollout.ladder=[0.5]`. What hints save is seen in ``hinted``, ``hints/0.25``, ...; that they are
sampled, in ``sampled_tokens``.

Differs: the reward is the setting's (accuracy and half a point for the format there). The bundled model reads no
English, so that the hint simply follows its prompt: `rollout.request` is ``{question}{hint}``.

Measured here: a simulated learner (`posttrain diagnose hints grpo more always ladder`), whose tasks succeed once in a
few hundred rollouts, 30,000 rollouts, 5 seeds: success from bare prompts .035 [.023, .047] for GRPO, .010 [.009, .011]
with groups of 32, .186 [.183, .188] with half of the solution in every prompt, .973 [.969, .976] for the ladder, where
half of a gain with hints carries over to bare prompts; .785 [.737, .832] where a quarter does, and .009 [.008, .010]
where none does (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rollouts.hinted import Hinted
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, rl_of, rollouts_of, sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.uneven_sums import uneven_sums

PARENT: Final = "grpo"
SETTING: Final = "uneven_sums"
PAPER: Final = "arXiv:2507.10628"
ROWS: Final = (259,)

REQUEST: Final = "{question}{hint}"
"""For a base model, whose completion goes on where the hint ends."""


def ghpo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: tasks that are not solved are shown more and more of their solution."""
    recipe = grpo(recipe or uneven_sums())
    stage = sampled_of(recipe)
    hinted = Hinted(n=rollouts_of(stage), request=REQUEST, sampling=sampling_of(stage))
    stage = replace(rl_of(recipe), rollout=hinted, filters=every_group(stage))
    return with_stage(replace(recipe, name="ghpo"), stage)
