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

Measured here: 60 held-out tasks, five seeds, 60 steps (``python docs/experiments/tool_plans.py --seeds 5 --steps 60``).
The mean score of a drawn plan, 0 where it does not fit, is 0.152 [0.145, 0.159] after ten demonstrations, which are the
same for all seeds, 0.244 [0.210, 0.279] after RLTF, and 0.161 [0.128, 0.194] after as many steps without the
constraint, all drawn under it. Of the plans that are drawn under it all links are valid, 1.000 [1.000, 1.000], 1.000
[1.000, 1.000] and 1.000 [1.000, 1.000]; 0.607 [0.606, 0.609], 0.984 [0.975, 0.994] and 0.919 [0.729, 1.109] also fit
the ends of the task. Drawn freely, links are valid in 0.048 [0.041, 0.055], 0.029 [-0.048, 0.106] and 0.977 [0.962,
0.991]: what learned under the constraint needs it. The release's loss is not compared (docs/experiments.md).
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
ROWS: Final = (275,)


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
