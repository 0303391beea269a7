"""AMFT, a WITHDRAWN paper: imitation and GRPO in one loss, with a share of imitation that a meta-gradient moves.

Source: arXiv:2508.06944, WITHDRAWN by its authors (version 3 states that it is under investigation). Nothing of its
results is claimed or aimed at here: this is the idea of a learned weight of a mixture, built from a third party's
reading of the first version; the estimator of the paper is not known, and its code is gone. After a warm-up of
imitation the loss is mu times imitation plus 1 - mu times GRPO. mu follows the slope of the loss of validation
demonstrations in mu, and the distance of the policy's entropy from that after the warm-up (`balances/meta_gradient`).

    posttrain run amft tasks=mine.jsonl experts=solutions.jsonl    # columns: prompt, answer; prompt, completion

`balance.tasks` names demonstrations for the validation; without it they are those that are learned from, which cannot
show that they are spoilt. The slope costs three backward passes per step: one each over the rollouts, the
demonstrations and the validation.

Differs: see `balances/meta_gradient`; mu is moved after the step that its slope is of, before the next one. The
warm-up takes a sixth of the stage's steps, and is part of the same stage.

Measured here, of the idea alone: two families (60 steps of 32 x 4, 5 seeds, other letters as the validation): held-out
letters 57.7 % [31.8, 83.7] and sums 61.9 %, against GRPO's 0 and 70.2 % and 90.0 and 60.8 % of SFT for two epochs with
GRPO after it; of all answers 59.5 %, +22.9 points on GRPO [2.9, 42.9], 15.2 less than SFT first. mu goes from 0.5 to
0.61; with demonstrations whose results are off by 123 to 0.58, 0.03 less [0.02, 0.05], at half the slope, and no
letters are learned: their form is still right, so that mu rises less, but does not fall (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.balances.meta_gradient import MetaGradient
from posttrain.components.experts.stream import Stream
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.reducers.by_origin import ByOrigin as ByOriginReducer
from posttrain.components.reducers.tokens import Tokens
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, rollouts_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_families import two_families

PARENT: Final = "grpo"
SETTING: Final = "two_families"
PAPER: Final = "arXiv:2508.06944"
ROWS: Final = (211,)


def amft(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a stream of experts, and a balance that is learned."""
    recipe = grpo(recipe or two_families())
    stage = rl_of(recipe)
    stage = replace(
        stage,
        experts=Stream(batch=max(stage.prompts * rollouts_of(stage) // 4, 1)),
        balance=MetaGradient(warmup=stage.steps // 6),
        objective=ByOrigin(sampled=stage.objective),
        reducer=ByOriginReducer(sampled=stage.reducer, demonstrated=Tokens()),
    )
    return with_stage(replace(recipe, name="amft"), stage)
