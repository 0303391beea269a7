"""ASearcher: GRPO for long searches, sampled without waiting for a step, with a weight for tokens of older policies.

Source: arXiv:2508.07976, and its released code (inclusionAI/ASearcher, AReaL). A group may start while accepted +
running < (eta + version + 1) B, eta 4; weights change in the middle of rollouts, and each token keeps the probability
that drew it. Groups whose rewards are all equal are not accepted and free their place. The reward is the F1 of the
answer's words, times a gate on the format of every turn. It minus the group's mean, without a std, is normalized over
all tokens of the batch. The loss is decoupled PPO: the clip, 0.4, is about the policy before the update, and each token
has the weight of that policy over the one that drew it; above 5 it is dropped, and still counts in the mean.

    posttrain run asearcher tasks=mine.jsonl model=FOLDER schedule.eta=4
    # columns: prompt, answer (or answers), facts ({"kiwi": 47}, what the search has), demands_valid, augmented

The quota bounds when a group starts, and not its age when it is learned from: ``beyond_eta`` and ``staleness_max`` have
what really happened, `schedule.oldest` bounds it.

`CHANGES`: the reward.

Differs: search is a table of facts, with a calculator, in place of the web, so that prompts and answers are short;
questions are not synthesised from pages by a model. The bias and scale of the released rewards (10 (s - 0.5), clipped
at 20) are left out: the normalization cancels them but for the clip, which centered rewards between -1.5 and 1.5 do not
reach. The test of equal rewards is of their range; the released one, of centered floats, misses some. The variance of
the batch is unbiased. 8 rollouts a question, where the release has 16.

Measured here, five seeds (docs/experiments.md): simulated rollouts of log-normal length, one in 64 ten times as long,
give 4.8 [4.4, 5.2] steps a minute where a step waits and 59.7 [59.7, 59.8] with eta 4; 17.6 % [17.3, 17.9] of the
groups are older than eta when they are learned from, at most 56 steps. On softmax bandits with ages of that stream
decoupled PPO is stable at high rates, 0.999 [0.998, 0.999] of the best reward, and so is PPO's clip about the sampler,
0.998 [0.998, 0.998]: no difference that matters. Where contexts share weights and rewards are drawn, the highest rate
makes PPO's clip about the sampler fall by 0.093 [0.040, 0.146] below what it had reached, and decoupled PPO by 0.019
[0.011, 0.028]; it ends at 0.741 [0.686, 0.796] of the best reward, with the clip about the sampler at 0.648 [0.561,
0.736], with truncation in place of dropping at 0.696 [0.670, 0.722]. The default run, once: 78.3 % of 60
held-out questions after imitation, 81.7 % after 40 steps, which 60 cannot distinguish; 6.9 % of its groups were older
than eta, at most 6 steps.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.reinforce_plus_plus import ReinforcePlusPlus
from posttrain.components.corrections.dropped import Dropped
from posttrain.components.environments.two_tools import TOOLS, TwoTools
from posttrain.components.filters.zero_variance import ZeroVariance
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.search_answer import SearchAnswer
from posttrain.components.rollouts.turns import Turns
from posttrain.components.timetables.streaming import Streaming
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, rollouts_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_tools import two_tools

PARENT: Final = "grpo"
SETTING: Final = "two_tools"
PAPER: Final = "arXiv:2508.07976"
ROWS: Final = (266,)
CHANGES: Final = ("reward",)


def asearcher(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: searches in a stream, decoupled PPO, advantages normalized over the tokens of the batch."""
    recipe = keep_verifier(grpo(recipe or two_tools()))
    stage = rl_of(recipe)
    rollout = stage.rollout
    if not isinstance(rollout, Turns):
        rollout = Turns(environment=TwoTools(), n=rollouts_of(stage), max_turns=4, sampling=sampling_of(stage))
    stage = replace(
        stage,
        rollout=rollout,
        reward=SearchAnswer(tools=TOOLS),
        filters={"zero_variance": ZeroVariance()},
        advantage=ReinforcePlusPlus(baseline="group"),
        objective=PPOClip(clip_low=0.4, clip_high=0.4),
        reducer=Tokens(),
        correction=Dropped(cap=5.0),
        old_logp="recomputed",
        refill=None,
    )
    schedule = Streaming(eta=4, piece=32, learning=1, filtered="group")
    return with_stage(replace(recipe, name="asearcher", schedule=schedule), stage)
