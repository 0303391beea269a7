"""TimeHC-RL: GRPO with a bonus for correct answers that depend on the order of events, in one of three styles.

Source: arXiv:2505.24500, of which no code is published: the rewards (format 1, right 2, wrong -1.5) and alpha are known
from public reviews; the rule of the bonus is that of Video-R1, from which it comes. Each task is also asked with its
events in another order; where the accuracy in order is at least mu times that on the copy, correct rollouts get 0.1
more advantage (`advantages/ordered`, `rollouts/shuffled`). The style, an answer alone, after a short context or after a
thought, is the model's choice and has no reward.

    posttrain run timehc_rl tasks=mine.jsonl model=FOLDER
    # columns: prompt, answer, shuffled (the prompt with its events in another order; none where the order is nothing)

A group that is all correct gets the bonus too, and so no group is filtered. `advantage.where=reward` gives the bonus
on the reward; with rewards of two values it has no effect there.

Differs: half as many completions of the copy as of the task, and mu 0.8, which are Video-R1's. Rewards are the
setting's, of the published values; a broken format has -1, an unreadable answer -2, which are Logic-RL's.

Measured here over five seeds (`stories`, 80 steps): the accuracy on held-out stories is 39.8 % [25.9, 53.7] without the
bonus, 41.5 % with it on the reward, 40.3 % on the advantage; on order-free questions 53 % in all three. Sampled answers
of the last ten steps are correct in 30.2, 30.0 and 31.4 % of the stories and 14.3, 13.3 and 13.5 % of their copies. No
difference is one that five seeds can show.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.ordered import Ordered
from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.shuffled import ShuffledCopies
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.stories import stories

PARENT: Final = "grpo"
SETTING: Final = "stories"
PAPER: Final = "arXiv:2505.24500"
ROWS: Final = (143,)


def timehc_rl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: shuffled copies are sampled too, and a bonus is given where order helps."""
    recipe = grpo(recipe or stories())
    stage = rl_of(recipe)
    own = stage.rollout if isinstance(stage.rollout, Independent) else Independent()
    copies = ShuffledCopies(n=own.n, copies=max(1, own.n // 2), sampling=own.sampling, role=own.role)
    stage = replace(stage, rollout=copies, advantage=Ordered(), filters={})
    return with_stage(replace(recipe, name="timehc_rl"), stage)
