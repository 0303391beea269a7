"""CGPO: a policy gradient on calibrated rewards of rollouts that keep every constraint of their task, near a reference.

Source: Xu et al. 2024 (The Perfect Blend), arXiv:2409.20370; the three rules were read in a port to TRL. A reward is
calibrated by a stored baseline answer and is 0 where a constraint is broken (`rewards/constraints`); what is far from
the reference has less of it, and the mean over the whole batch is subtracted (`advantages/cgpo`). No clip, no KL term.

    posttrain run cgpo tasks=mine.jsonl model=FOLDER "reward={kind: constraints, of: match, constraints: {brief: ...}}"
    # columns: prompt, answer, baseline (an answer to calibrate with; the first demonstration where there is none)

The two other rules: `posttrain run cgpo advantage.rule=crraft`, and

    posttrain run cgpo advantage.rule=codpo
        "objective={kind: pairwise, pairs: extremes, loss: {kind: rpo, eta: 5, length: mean, times_beta: false}}"

Tasks may have rewards and constraints of their own, chosen by `routed`; no task is scored by those of another.

Differs: numbers of rollouts, learning weights and K are one for all tasks; the paper has its own for each, and its
values are not known.

Measured here over five seeds, on bandits whose best arm breaks its constraint (`docs/experiments/illegal_arm.py`): the
probability of that arm ends at .98 with the plain reward, .84 calibrated without constraints, .007 with crpg, .020 with
crraft, .002 with codpo; with 10 % false passes of the checker at .009, .041 and .008. The best legal arm ends at .61,
.92 and .99: crpg is slower, as its weights are small. Of sums with one weight for two tasks, each with its own
checker, .1 and .5 fail where rewards are larger, and 2 does as well as the constraints. Where the sum has the checkers
of both tasks, and a right answer of the first breaks what the second demands, no single weight matches: of the best
legal arm, the task that does worse has a probability of at most .005 at five weights from .1 to 2, .60 with crpg.

The default run (40 steps, 5 seeds): 34.3 % [29.4, 39.2] of held-out answers are right and keep their limit before it,
54.9 % [51.1, 58.7] after it, +20.6 points [17.0, 24.2]. The share of rollouts that break a limit rises meanwhile, from
4.9 to 9.6 % of the first and last five steps, as right solutions are longer than what the model wrote at first.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.cgpo import CGPO
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.constraints import Constraints
from posttrain.components.rewards.regex import Regex
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.limited_kinds import limited_kinds

PARENT: Final = "grpo"
SETTING: Final = "limited_kinds"
PAPER: Final = "arXiv:2409.20370"
ROWS: Final = (287,)


def cgpo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: calibrated rewards behind constraints, against the mean of the batch, near a reference."""
    recipe = with_rl(recipe or limited_kinds())
    stage = rl_of(recipe)
    reward = stage.reward
    if not isinstance(reward, Constraints):
        recipe = keep_verifier(recipe)
        reward = Constraints(of=reward, constraints={"not_empty": Regex(pattern=r"\S")}, baseline=0.0)
    stage = replace(
        stage,
        reward=reward,
        filters=every_group(stage),
        advantage=CGPO(),
        objective=PolicyGradient(),
        reducer=Tokens(),
        penalties={},
    )
    recipe = with_models(replace(recipe, name="cgpo"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
