r"""MRT: GRPO from prefixes of thoughts, with the progress against answering at once as advantage.

Source: Qu et al. 2025 (Meta Reinforcement Fine-Tuning), arXiv:2503.07572, and the README and analysis of its release
(CMU-AIRe/MRT at 1815a8c). A trace is sampled and cut after one of its episodes; half of a group thinks on from there,
the other half must answer (`rollouts/prefix_groups`). The advantage is the reward less the mean reward of those who
answer at once, beside that less the mean of the group (`advantages/termination`). Every group is kept.

    posttrain run mrt tasks=mine.jsonl model=FOLDER rollout.split=episodes 'rollout.end="\n</think>\n"'
    # columns: prompt, answer; thoughts in <think>...</think>, episodes begin with Wait, Alternatively and such
    posttrain run mrt advantage.outcome=0          # the first alone, as the README of the release has it
    posttrain run mrt rollout.ahead=episode        # one more episode, and a forced answer: progress by episode
    posttrain run mrt rollout.boundaries=all       # a group at every boundary, the form with branches
    posttrain diagnose thought_regret RUN tasks=mine.jsonl reward=match

The bundled model's thoughts are steps with trivial ones between them; they are the episodes.

Differs: prefixes are of the policy of the step. The form that imitates correct traces with the most progress is not
here. alpha is 1, that of the card of the release; the paper's was not read. A reward for steps (`process`) is replaced
by that for the answer.

Measured here over five seeds, on slots of candidates with an exact J (`docs/experiments/candidate_slots.py`): the
normalised regret is .291 [.266, .315] after GRPO on outcomes, and .261 [.260, .261] after as many rollouts whose
episodes each have their progress beside the outcome, alpha 1, the objective of the paper: 10 % less, at a success of
100 % against 99.8 %; .260 is the least that can be reached. Groups from prefixes with one more episode, as many
rollouts, have .268 [.258, .278] at 99.5 %, and thinking on to the end .373 [.317, .429]. One step of progress at a time
does not train a model whose answers before the last step are never right; so a rollout thinks on to its end in the
default run.

The default run, sums of two or three numbers: 53.0 % [47.3, 58.7] of held-out sums are right after imitation, 86.9 %
[85.0, 88.8] after it, and 86.6 % [83.5, 89.7] with GRPO, in thoughts of the same 22.8 tokens: no difference that five
seeds can show. On sums of three or four numbers, of which an early answer is never right, MRT learns next to nothing
(8.7 %, then 10.0 %, where GRPO has 57.3 %; one seed).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.termination import Termination
from posttrain.components.rewards.process import Process
from posttrain.components.rollouts.prefix_groups import PrefixGroups
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, rollouts_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.short_padded_sums import short_padded_sums

PARENT: Final = "grpo"
SETTING: Final = "short_padded_sums"
PAPER: Final = "arXiv:2503.07572"
ROWS: Final = (39,)
CHANGES: Final = ("rollout.n",)  # as many as before think on, and as many answer at once


def mrt(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: groups from prefixes, half of which answer at once, as the baseline; every group is kept."""
    recipe = grpo(keep_verifier(recipe or short_padded_sums()))
    stage = rl_of(recipe)
    reward = stage.reward.correct if isinstance(stage.reward, Process) else stage.reward
    n = max(2, 2 * rollouts_of(stage))
    rollout = PrefixGroups(n=n, split="steps", end="\n####", ahead="end", sampling=sampling_of(stage))
    stage = replace(
        stage, reward=reward, rollout=rollout, advantage=Termination(outcome=1.0), filters=every_group(stage)
    )
    return with_stage(replace(recipe, name="mrt"), stage)
