"""Agnostics: GRPO for programming in any language, with a language-agnostic verifier of program outputs.

Source: Boruch-Gruszecki et al. 2025, arXiv:2508.04865: GRPO with a verifier that needs only the commands to compile and
run a language. The reward is 1 for a program with the expected output for every input, 0.2 for one that runs and prints
something else, 0 for one that fails. As released, the ratio is that of the policy to itself, so that its clipping never
acts: a plain policy gradient, averaged over the tokens of a completion first. Groups of equal rewards count in the
mean.

    posttrain run agnostics tasks=mine.jsonl model=FOLDER
    # columns: prompt, tests ([{input: ..., output: ...}, ...]), language (bash, ...), completion (a program to imitate)

Differs: samples are on-policy, not one step old.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.io_tests import IOTests
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.recipes.changes import every_group, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.programs import programs

PARENT: Final = "grpo"
SETTING: Final = "programs"
PAPER: Final = "arXiv:2508.04865"
ROWS: Final = (116,)


def agnostics(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: programs are scored by their output, with a partial reward for running; no clipping."""
    recipe = with_rl(recipe or programs())
    stage = rl_of(recipe)
    tests = stage.reward if isinstance(stage.reward, IOTests) else IOTests()
    stage = replace(
        stage,
        reward=replace(tests, wrong_output=0.2),
        filters=every_group(stage),
        advantage=GroupMean(epsilon=1e-4),
        objective=PolicyGradient(),
        reducer=Sequences(),
    )
    return with_stage(replace(recipe, name="agnostics"), stage)
