r"""ToTRL: puzzles of which all solutions are asked for; RL with an empty block of thoughts first, then as usual.

Source: arXiv:2505.12717; no code, and its equations are known from reviews. In the first stage every answer begins with
an empty block of thoughts, so that the model writes its tree in the answer itself; the second goes on from its weights
as the model is. Both are RL with PPO's clip (0.2) on rewards less the group's mean, without KL. The reward is the form,
then equality of the set of solutions. 1,440 Sudoku of six rows and alphametics in the paper.

    posttrain run totrl tasks=mine.jsonl model=FOLDER    # columns: prompt, solutions (a list of texts)
    posttrain run totrl 'tasks={kind: puzzles, names: [alphametic, sudoku], size: 1440}' model=FOLDER

For a chat model the empty block is `no_thinking.rollout.prefix="<think>\n\n</think>\n\n"`; a form of the tree:
`reward={kind: gated, gate: {kind: format, tags: [tot]}, reward: solution_set}`, in both stages. The second stage
alone is `no_thinking.steps=1`; one solution is enough with `reward.need=one`.

Differs: unverified. Whether the advantage is divided by the std, the number of rollouts, rates, and the split of steps
are not known: here no division, and half of the setting's steps for each stage, whose optimizer begins anew. The
setting's puzzles are products of digits; the paper's are given above.

Measured here: a table of puzzles with three solutions (5 seeds, `docs/experiments/solution_sets.py`): the whole set is
listed with probability .982 [.981, .983] after two stages, .208 [.075, .341] after as many steps as usual, .397 [.383,
.411] after steps with the tree alone, half of whose gain carries over. With one solution as the reward .386 [.337,
.434] list the whole set, .999 one of them, as expected (docs/experiments.md). On the default setting, five seeds,
100 held-out puzzles with two solutions, of which half of the warm-up's trees stop at the first: 27.6 % [14.0, 41.2]
whole sets after the warm-up, 59.6 % [48.5, 70.7] after the first stage (+32.0 points [+20.9, +43.1]), 62.2 % [52.6,
71.8] after the second (+2.6 points [-1.1, +6.3]).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.rollouts.forced import Forced
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, rollouts_of, sampled_of, sampling_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.puzzles import EMPTY, puzzles

PARENT: Final = "grpo"
SETTING: Final = "puzzles"
PAPER: Final = "arXiv:2505.12717"
ROWS: Final = (284,)


def totrl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a first stage in which answers begin with an empty block of thoughts, then one as usual."""
    recipe = grpo(recipe or puzzles())
    old = sampled_of(recipe)
    stage = replace(old, advantage=GroupMean(scale="none"), filters=every_group(old))
    first = max(1, stage.steps // 2)
    forced = Forced(prefix=EMPTY, n=rollouts_of(stage), sampling=sampling_of(stage))
    stages = {name: other for name, other in recipe.stages.items() if other is not old}
    stages["no_thinking"] = replace(stage, steps=first, rollout=forced)
    stages["thinking"] = replace(stage, steps=max(1, stage.steps - first))
    return replace(recipe, name="totrl", stages=stages)
