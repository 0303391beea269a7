"""Clip and delta: PPO with process rewards that further steps cannot add to.

Source: "On Designing Effective RL Reward at Training Time for LLM Reasoning", arXiv:2410.15115. The score of each step
is clipped from above, min(r - eta, 0), and rewarded as its difference from that of the next step; from any step to the
end these sum to its clipped score. Success has the weight 1 beside it. gamma = lambda = 1: with any other discount the
differences do not cancel, and the run is refused.

    posttrain run clip_delta tasks=mine.jsonl model=FOLDER 'reward.steps={kind: function, path: ./mine.py:score}'
    # columns: prompt, answer; score(completion) gets a completion up to the end of a step: 0 to 1

`reward.eta=null` leaves out the clip, `reward.delta=false` the difference; with neither, rewards are raw.

Differs: the equations of the paper were read in notes about it; eta (0.5) and alpha (0.2) are ours. A rule scores the
steps of sums (`rewards/equations`), the paper has a process reward model. The KL is that of PPO here, 0.01 in the
reward.

Measured here (30 steps, 5 seeds), held-out sums and steps of sampled solutions at the end: raw 0 % and 17.3 steps, as
many as fit; clip 67.9 % and 3.5; delta alone 0 % and 13.9; both 54.1 % and 3.7; success alone 63.2 % and 3.7. Against
success alone clip has +4.7 points [-1.4, +10.7] and both have -9.1 [-36.1, +18.0]: no gain that five seeds can show.
That delta alone collapses contradicts the claim. A step that is not the last has its score left in the returns, the
last one nothing, so that under returns from each token on one more trivial step always adds alpha r
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.rewards.equations import Equations
from posttrain.components.rewards.process import Process
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.padded_sums import padded_sums

PARENT: Final = "ppo"
SETTING: Final = "padded_sums"
PAPER: Final = "arXiv:2410.15115"
ROWS: Final = (229,)


def clip_delta(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: clipped process rewards as differences, and undiscounted returns."""
    recipe = ppo(keep_verifier(recipe or padded_sums()))
    stage = rl_of(recipe)
    reward = stage.reward
    steps = reward if isinstance(reward, Process) else Process(correct=reward, steps=Equations())
    stage = replace(stage, reward=replace(steps, eta=0.5, delta=True), advantage=GAE(lam=1.0))
    return with_stage(replace(recipe, name="clip_delta"), stage)
