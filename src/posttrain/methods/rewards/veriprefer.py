"""VeriPrefer: DPO on modules that a test bench ranks, sampled once from a model that has imitated.

Source: Wang et al. 2025, arXiv:2504.15804: several modules are sampled for each specification, ranked by the share of
the test bench that they get right, and the better and the worse of them are a pair for DPO, with the imitating model
as the reference.

Differs: one step of the stage is the whole round, in ``learner.minibatches`` updates; the best is compared with the
worst. Test benches are generated with the formulas, where the paper has a language model write and mend them. Number
of samples, beta and sizes are ours, for the bundled model.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.verilog import Verilog
from posttrain.components.rollouts.independent import Independent
from posttrain.methods.rewards.verireason import verireason
from posttrain.recipe.changes import rl_of, sampling_of, with_stage
from posttrain.recipe.tree import Recipe

ROWS: Final = (261,)


def veriprefer(recipe: Recipe | None = None) -> Recipe:
    """A change to VeriReason: the share of right rows is the reward, and pairs of one round are learned from by DPO."""
    recipe = recipe or verireason()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        steps=1,
        prompts=160,
        rollout=Independent(n=8, sampling=replace(sampling_of(stage), temperature=1.0)),
        reward=Verilog(right=1.0, compiles=0.0, structure=0.0, partial=1.0),
        filters={"best_and_worst": BestAndWorst()},
        penalties={},
        objective=Pairwise(loss=DPO()),
        reducer=Sequences(),
        learner=replace(stage.learner, optimizer=AdamW(lr=2e-5), minibatches=10),
    )
    return with_stage(replace(recipe, name="veriprefer"), stage)
