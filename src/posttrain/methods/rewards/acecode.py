"""ACECode: PPO for correct and efficient programs, with a reward for passing tests and for speed.

Source: Yang et al. 2024, arXiv:2412.17264: 0.5 + 0.5 * min(t_ref / t_own, 1) for a program that passes every test, and
decreasing levels for one that prints a wrong result, crashes, or does not compile; a critic, and a KL to the initial
model.

    posttrain run acecode tasks=mine.jsonl "models.policy={source: FOLDER, trained: true}"
    # columns: prompt, tests ([{input: ..., output: ...}, ...]), answer (a reference program), completion (to imitate)

Programs are in the language of the setting's reward, or in Python.

Differs: efficiency is the number of instructions instead of time. The cap of 1 and the levels of failure are ours
(`posttrain.components.rewards.counted_work`). The default setting is sums up to n in C.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards import Reward
from posttrain.components.rewards.counted_work import CountedWork
from posttrain.components.rewards.io_tests import IOTests
from posttrain.methods.policy_gradient.ppo import as_ppo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.running_sums import running_sums

PARENT: Final = "ppo"
SETTING: Final = "running_sums"
PAPER: Final = "arXiv:2412.17264"
ROWS: Final = (64,)


def acecode(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: a correct program is rewarded by the number of instructions it executes."""
    recipe = keep_verifier(as_ppo(recipe or running_sums()))
    stage = rl_of(recipe)
    return with_stage(replace(recipe, name="acecode"), replace(stage, reward=_counted(stage.reward)))


def _counted(reward: Reward) -> CountedWork:
    """The efficiency reward, for programs in the language of the given reward."""
    match reward:
        case CountedWork():
            return reward
        case IOTests():
            return CountedWork(
                language=reward.language,
                languages=reward.languages,
                references=reward.references,
                weakest=reward.weakest,
            )
        case _:
            return CountedWork()
