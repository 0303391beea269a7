"""WebSailor-V2: on-policy leave-one-out advantages without copies, where cut rollouts are not trained on.

Source: arXiv:2509.13305, and section 3.4.3 of the report on Tongyi DeepResearch with the same objective. One update per
batch; the reward minus the mean of the other rollouts of the task, without a std; the mean over tokens, clip 0.2 and
0.28. A rollout that is cut at the token limit counts in the mean of its group and is masked in the loss. A broken
format has a negative reward. Groups are larger in place of dynamic sampling, and tasks that are solved in all rollouts
or in none by the model after imitation are left out.

    posttrain run websailor_v2 tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

Differs: the size of the negative reward is not published (here -0.5), and a cut rollout has it too, in the mean of its
group, as its format is broken. The renewal of tasks is that of a stage: tasks are chosen when it begins. The
web, its simulator and the graphs of questions are not here.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.pool_mean import PoolMean
from posttrain.components.filters.finished import Finished
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.levels import Levels
from posttrain.components.selections.by_level import ByLevel
from posttrain.methods.agents.websailor import answer_of
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.formatted_sums import formatted_sums

PARENT: Final = "grpo"
SETTING: Final = "formatted_sums"
PAPER: Final = "arXiv:2509.13305"
ROWS: Final = (302,)
CHANGES: Final = ("reward",)
ROLLOUTS: Final = 8
"""Of a task, to see whether it is solved in all of them or in none."""


def websailor_v2(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: leave-one-out advantages without a std, masked cut rollouts, and a negative score of form."""
    recipe = keep_verifier(grpo(recipe or formatted_sums()))
    stage, most = rl_of(recipe), sampling_of(rl_of(recipe)).max_tokens
    correct = answer_of(stage.reward)
    moderate = ByLevel(
        reward=correct,
        k=ROLLOUTS,
        levels=tuple(range(2, ROLLOUTS + 1)),
        count=1_000_000,
        max_tokens=most if isinstance(most, int) else 1024,
    )
    stage = replace(
        stage,
        reward=Levels(correct=correct, form=Format(), broken=-0.5, unreadable=0.0, wrong=0.0, right=1.0),
        selection=moderate,
        filters={**every_group(stage), "finished": Finished()},
        advantage=PoolMean(itself=False),
        objective=PPOClip(clip_low=0.2, clip_high=0.28),
    )
    return with_stage(replace(recipe, name="websailor_v2"), stage)
