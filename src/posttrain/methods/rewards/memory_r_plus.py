"""Memory-R+: GRPO with rewards for thoughts that are like those of earlier successes and unlike earlier failures.

Source: Le et al. 2025, arXiv:2504.02273, and its release (github.com/thaihungle/Memory-R at a193f4f6). Two memories of
embedded thoughts, by question, give two rewards that are added to that for the answer with weight 1
(`rewards/episodic_memory`): `exploit` for all rollouts, `explore` for correct ones. GRPO, every group, since a group
without a correct answer has differences in `exploit`.

    posttrain run memory_r_plus tasks=mine.jsonl model=FOLDER    # columns: prompt, answer
    posttrain run memory_r_plus reward.explore=0 reward.most_values=1000                    # Memory-R
    posttrain run memory_r_plus 'reward.of=[match, {kind: format}]'                         # tags are rewarded too

Thoughts stand in ``<think>...</think>``; without tags the whole completion is one.

Differs: `explore` begins with 50 questions with a failure, not 500, as a run here has 1,600 questions. The reward for
the answer is the setting's; the release adds up to 2 for tags and for a whole number, which `reward.of` can have. An
embedding is that of the reward, not of a sentence encoder.

Measured here over five seeds, on a bandit of 30 texts of which one is right (`docs/experiments/thought_memories.py`):
steps until it has the probability one half are 73 [63, 84] with the answer's reward, 31 [24, 38] with `exploit` and 22
[17, 27] with both. But 2 and 3 for the right answer alone, what it has with the memories, do as well: 34 [24, 45] and
22 [13, 30]; and with shuffled texts it is 44 [27, 60] and 25 [19, 31]. So the gain is that of a larger reward, and none
from likeness of thoughts was seen.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.episodic_memory import EpisodicMemory
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2504.02273"
ROWS: Final = (91,)


def memory_r_plus(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: memories of successes and failures add to the reward; every group is kept."""
    recipe = grpo(keep_verifier(recipe or arithmetic()))
    stage = rl_of(recipe)
    of = stage.reward.of if isinstance(stage.reward, EpisodicMemory) else stage.reward
    stage = replace(stage, reward=EpisodicMemory(of=of, warm_up=50), filters=every_group(stage))
    return with_stage(replace(recipe, name="memory_r_plus"), stage)
