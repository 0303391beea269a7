"""ACECode: PPO for programs that are right and do little work.

Source: Yang et al. 2024, arXiv:2412.17264: 0.5 + 0.5 * min(t_ref / t_own, 1) for a program that passes every test, and
by steps less for one that prints something wrong, crashes, or does not compile; a critic, and a KL to the model that
training began with.

    posttrain run acecode tasks=mine.jsonl "models.policy={source: FOLDER, trained: true}"
    # columns: prompt, tests ([{input: ..., output: ...}, ...]), answer (a reference program), completion (to imitate)

Programs are in the language that the setting's reward runs, or in Python.

Differs: work is counted in instructions, not timed; the cap of 1 and the levels of failure are ours
(`posttrain.components.rewards.counted_work`). The default setting is sums up to n in C.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards import Reward
from posttrain.components.rewards.counted_work import CountedWork
from posttrain.components.rewards.io_tests import IOTests
from posttrain.methods.policy_gradient.ppo import as_ppo
from posttrain.recipes.changes import judged_as_before, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.running_sums import running_sums

PARENT: Final = "ppo"
SETTING: Final = "running_sums"
PAPER: Final = "arXiv:2412.17264"
ROWS: Final = (64,)


def acecode(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: a right program is rewarded by how much work it does."""
    recipe = judged_as_before(as_ppo(recipe or running_sums()))
    stage = rl_of(recipe)
    return with_stage(replace(recipe, name="acecode"), replace(stage, reward=_counted(stage.reward)))


def _counted(reward: Reward) -> CountedWork:
    """The reward for work, of programs in the language that another reward runs."""
    match reward:
        case CountedWork():
            return reward
        case IOTests():
            return CountedWork(language=reward.language, languages=reward.languages, weakest=reward.weakest)
        case _:
            return CountedWork()
