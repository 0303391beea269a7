"""Constrained rates: GRPO with behaviors that must occur at requested rates, at weights learned beside the reward's.

Source: direct behavior specification, Roy et al. 2022, arXiv:2112.12228, and J. Roy's thesis on reward specification,
of which the abstract was read and the code of this part (ubisoft/DirectBehaviorSpecification at 2ffb613). Each behavior
is a part of the score with weight 0; weights are shares of a softmax, trained by Adam at 100 times the policy's
learning rate on rates over the last 2000 rollouts (`advantages/constrained`). The alarm ``reward_weight`` reports that
constraints have taken nearly all of the reward's weight.

    posttrain run constrained_rates tasks=mine.jsonl model=FOLDER 'advantage.at_most={long: 0.3}' \
        'reward={kind: sum, parts: {correct: match, long: {kind: regex, pattern: "(?s)^.{200,}$"}}, weights: {long: 0}}'
    # columns: prompt, answer

What the thesis reads, and where it runs here:

    shaping          posttrain diagnose invariance, posttrain diagnose reward_weights
    composition      reward sum, reward gated
    constraints      constrained_rates, cgpo
    imitation        sft, asaf, iq_learn, dr_irl
    preferences      dpo, j1
    language         reward_anything, ruscarl
    coordination     cory

Differs: each part has the group's mean as its baseline in place of a critic of its own, and there is no entropy bonus.
By default answers of 56 characters or more may be 30 % of all, since the setting's solutions have needless checks.
`INHERITED` has what is GRPO's.

Measured here, five seeds of a table of ten kinds of tasks, where long answers are right more often and 30 % may be long
(`docs/experiments/reward_rates.py`): the learned weight leads to 29.7 % [26.6, 32.9] long answers and 55.4 % [54.0,
56.9] right ones, where the best policy within the rate has 56 %; fixed weights of 0.1, 0.3 and 1 to 78, 51 and 0 % long
ones, and 68, 63 and 40 % right ones. Where at most 20 % and at least 80 % are requested the reward keeps 0.032 [0.030,
0.033] of the weight, and the alarm is raised. In one run of the default the imitation of needless checks leaves 11 % of
held-out sums right, of 74 % before, and reinforcement raises them to 51 %, with 3 % long answers in the last step.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.constrained import Constrained
from posttrain.components.alarms.reward_weight import RewardWeight
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.sum import Sum
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.wordy_sums import wordy_sums

PARENT: Final = "grpo"
SETTING: Final = "wordy_sums"
PAPER: Final = "arXiv:2112.12228"
ROWS: Final = (205,)
CHANGES: Final = ("alarms",)
INHERITED: Final = {"objective": "PPO's clip; soft actor-critic with a critic for each signal in the source"}


def constrained_rates(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: learned weights of the reward and of the rates of behaviors, every group."""
    recipe = grpo(recipe or wordy_sums())
    stage = rl_of(recipe)
    reward, bounds = stage.reward, {}
    if not isinstance(reward, Sum):
        recipe = keep_verifier(recipe)
        reward = Sum(parts={"correct": reward, "long": Regex(pattern=r"(?s)^.{56,}$")}, weights={"long": 0.0})
        bounds = {"long": 0.3}
    rate = 100 * float(getattr(stage.learner.optimizer, "lr", 1e-4))
    stage = replace(stage, reward=reward, filters=every_group(stage), advantage=Constrained(at_most=bounds, rate=rate))
    recipe = replace(recipe, name="constrained_rates", alarms={**recipe.alarms, "reward_weight": RewardWeight()})
    return with_stage(recipe, stage)
