"""LlamaRL's AIPO: a step sampled ahead of the learner, and a truncated importance weight for what that changed.

Source: Wu et al. 2025, arXiv:2505.24034, as quoted in two notes, and a port of its loss (nvidia-cosmos/cosmos-rl). The
gradient of a token is min(pi / mu, rho) A grad log pi, with mu the weights that sampled; the weight is not
differentiated. Advantages are rewards minus the mean of the group, without a std. Generation of the next step
runs while a step is learned from (`schedule=lagged`): with ``cluster=ray`` at the same time, on one process one after
the other, with the same numbers. `objective.stop_above=true` is the port's reading, without a gradient above rho.

    posttrain run llamarl schedule.steps=4 objective.rho=10
    posttrain run llamarl cluster=ray cluster.samplers=2 cluster.learners=2

It needs what GRPO needs: rows with a prompt and an answer (`tasks=mine.jsonl`).

Differs: rho is 4, of the paper's 2 to 10. Number formats of the sampler are those of the learner. Weights go through
memory of the machine, not from GPU to GPU.

Measured here: softmax bandits, five seeds (docs/experiments/lagged_bandit.py). At lag 0 the weights of AIPO and of
`policy_gradient` are equal to the bit. The drop without weights that the paper reports is not seen at a lag of 16: the
unweighted gradient ends at 0.994 [0.994, 0.995] of the best reward, AIPO at 0.982 [0.980, 0.984] (rho 2) and 0.984
[0.981, 0.986] (rho 10), as on policy (0.983); `ppo_clip` against the sampler, which stops what has moved, at 0.715
[0.705, 0.725]. One arm of each context is right there, so that the bias of old samples points the right way too. Where
contexts share weights and rewards are drawn (``--features``), a lag of 16 costs the unweighted gradient more at two of
three rates: at 24 it ends at 0.741 [0.706, 0.777], AIPO with rho 2 at 0.766 [0.736, 0.797], on policy 0.791 [0.757,
0.825]. `ppo_clip` against the sampler stays the worst, 0.597 [0.583, 0.612].
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.aipo import AIPO
from posttrain.components.timetables.lagged import Lagged
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2505.24034"
ROWS: Final = (142,)


def llamarl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: sampled one step ahead, REINFORCE with truncated weights, no division by the std."""
    recipe = recipe or arithmetic()
    stage = replace(rl_of(recipe), objective=AIPO(rho=4.0), advantage=GroupMean(scale="none"))
    return with_stage(replace(recipe, name="llamarl", schedule=Lagged(steps=1)), stage)
