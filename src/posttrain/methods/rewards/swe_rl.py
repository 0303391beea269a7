"""SWE-RL: patches rewarded by their similarity to the true one, without running anything.

Source: SWE-RL, arXiv:2502.18449, and the reward of its release (facebookresearch/swe-rl at 5aa10d6; its trainer is not
released). The prompt has an issue and all files that matter, the answer is a thought and edit blocks, and GRPO rewards
the similarity of the differences (`rewards/patch_similarity`), or -1 for what has no form or cannot be applied.

    posttrain run swe_rl tasks=mine.jsonl model=FOLDER
    # columns: prompt (issue and files), files, oracle (objects from path to text); calls, for reward.execution=true

Differs: no KL term, and 8 rollouts of 8 prompts; the paper's 16 of 32, with a KL, are from memory. Files are not
searched for first. Faults are planted, not those of pull requests; the model imitates edits first, four in five of them
wrong.

Measured here over five seeds, by a table over form, place and content of an edit in files of 12 functions
(`docs/experiments/software_tables.py patches`): in the first ten steps no group is without spread, with exact matches
14.2 % [6.4, 22.1] are. The mean similarity reaches .85 while 19 % [-7, 45] of the patches are correct, and exact
matches reach it with 63.8 % [59.0, 68.6]: a comment in the right line has .97, nonsense there .91. After ten steps 20.5
% [-7.9, 48.9] are correct against 67.9 [64.0, 71.8] with exact matches, after 300 99.8 with both: the similarity rises
early, and what is correct does not.

In the default run 12, 5, 13, 20 and 17 % of 100 held-out patches are correct after imitation with seeds 0 to 4, of
which half has search and replacement exchanged, and 33, 62, 78, 70 and 54 % after 40 steps (59 % [38, 81] over seeds).
With seed 0 their mean reward is -0.76 and 0.46, and 8 % and 9 % of the groups of the first and last eight steps are
without spread. The mean rises by patches that can be applied. Where wrong operators and functions were
as frequent as exchanges (one seed, 50 steps), it rose from 0.64 to 0.92 while correct patches fell from 51 to 30 %: the
reward is a poor measure of what is correct, as the table shows.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.repairs import repairs

PARENT: Final = "grpo"
SETTING: Final = "repairs"
PAPER: Final = "arXiv:2502.18449"
ROWS: Final = (17,)


def swe_rl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the similarity of a patch to the true one as the reward."""
    recipe = grpo(keep_verifier(recipe or repairs()))
    stage = rl_of(recipe)
    own = stage.reward if isinstance(stage.reward, PatchSimilarity) else PatchSimilarity()
    return with_stage(replace(recipe, name="swe_rl"), replace(stage, reward=replace(own, measure="similarity")))
