"""OpenAGI: plans of typed tools, drawn among valid tokens only, learn from what they give when carried out (RLTF).

Source: arXiv:2304.04370, and its release (agiresearch/OpenAGI at 22190c5, rltf_schema_flan_t5.py,
generate_model_seq.py). After imitation of ten plans, a plan is drawn from the distribution over valid tokens: first any
tool, then those that take what the last one gives and were not used, or the end. It is carried out on the inputs of the
task; the reward is the mean similarity of its results to the references, and -1 where its ends do not fit the task. The
loss is -log p(plan) (r - b), with log p among the valid tokens, and b the mean reward of the other plans of the task,
or with one plan of a task a moving average of earlier rewards.

    posttrain run openagi tasks=mine.jsonl    # columns: prompt, inputs, outputs, goal, completion (for the ten)

Differs: the loss is that of the paper. The release has the mean of all rewards so far in place of the reward, and no
baseline. A plan is drawn by the model or is the likeliest; there, it is chosen among 30
beams, with log-probabilities as weights of the draw. The end of a plan is learned as well, since to stop is a choice.
Eight plans of a task in place of one; tools are of texts and numbers, not of pictures; all weights learn, as in the
release.

No row is claimed: the comparison with plans without the constraint has not been made over five seeds. With a moving
average as the baseline and a rate of 3e-4, one seed, 60 steps: 8 % of the held-out plans give what is wanted after ten
demonstrations, 23 % after RLTF; log-probabilities of sampler and learner are the same (``sampler_gap`` 0.000). Another
seed was stopped by the alarm `entropy_collapse` after 31 steps, hence the rate and the baseline of the setting.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.moving_baseline import MovingBaseline
from posttrain.components.reducers.constant import Constant
from posttrain.components.rollouts.constrained import Constrained
from posttrain.methods.policy_gradient.rloo import rloo
from posttrain.recipes.changes import rl_of, sampling_of, with_stage, without_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.tool_plans import tool_plans

PARENT: Final = "rloo"
SETTING: Final = "tool_plans"
PAPER: Final = "arXiv:2304.04370"
ROWS: Final = ()


def openagi(recipe: Recipe | None = None) -> Recipe:
    """A change to RLOO: constrained plans, some drawn and some the likeliest, and no KL."""
    recipe = rloo(recipe or tool_plans())
    stage = rl_of(recipe)
    n = stage.rollout.group_size or 8
    changed = replace(
        stage,
        rollout=Constrained(n=n, sampling=sampling_of(stage), epsilon=(1.0, 0.25)),
        advantage=stage.advantage if n > 1 else MovingBaseline(),
        penalties={name: penalty for name, penalty in stage.penalties.items() if name != "kl"},
        reducer=Constant(length=float(sampling_of(stage).max_tokens)),
    )
    return without_models(with_stage(replace(recipe, name="openagi"), changed), "reference")
