"""GAIN-RL: tasks are ordered by the angles of the policy's hidden states, and a window over the order moves forward.

Source: arXiv:2506.02281 (wangqinsi1/GAINRL at 20279ca). The premise is that tasks whose tokens have a smaller angle at
the last MLP have larger gradients. They come first; the window moves on with the success rate and the angles of what
was sampled, and never back. Trained by GRPO.

    posttrain run gain_rl tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

The release's weight of the context: `curriculum.weight=8`. Subsets of several steps: `curriculum.subset=500`. The model
must be loaded by the run, with an MLP by the usual names.

Every group is trained on, as in the release.

Differs: sigma and the pace are shares of the number of tasks, since the release's are ranks of 7,473 tasks.

Measured here (docs/experiments/angles.py, five draws of 60 sums): on the bundled model the rank by angles correlates
with the norm of the gradient of rewards by .27 [.15, .39], with the success rate by .69 [.60, .78], and with the norm
of the gradient of the right answer's likelihood by -.64 [-.76, -.52]: easy tasks come first. With a simulated learner
(`posttrain diagnose curriculum gain_rl uniform steps=80`; five seeds, standard errors), angles following difficulties
with noise: 3,840 ± 70 rollouts to an accuracy of .6, 5,683 ± 87 with uniform draws; with ``shuffled=true``, where
angles say nothing, 5,683 ± 119. One run on the default setting: 15.0 % of 200 held-out sums before, 26.0 % after 40
steps.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.angles import Angles
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.uneven_sums import uneven_sums

PARENT: Final = "grpo"
SETTING: Final = "uneven_sums"
PAPER: Final = "arXiv:2506.02281"
ROWS: Final = (45,)


def gain_rl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the tasks of a step are drawn around a rank, by the angles of hidden states."""
    recipe = grpo(recipe or uneven_sums())
    stage = rl_of(recipe)
    stage = replace(stage, curriculum=Angles(), filters=every_group(stage))
    return with_stage(replace(recipe, name="gain_rl"), stage)
