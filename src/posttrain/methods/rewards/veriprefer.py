"""VeriPrefer: DPO for Verilog generation on pairs of sampled modules, ranked by a test bench.

Source: Wang et al. 2025, arXiv:2504.15804: several modules are sampled for each specification, ranked by the share of
the test bench that they pass, and the better and the worse of them are a pair for DPO, with the SFT model as the
reference.

    posttrain run veriprefer tasks=mine.jsonl "models.policy={source: FOLDER, trained: true}"
    # columns: prompt, testbench, rows (the lines that it prints for a correct module), completion (to imitate)
    posttrain run veriprefer tasks=mine.jsonl models.writer.source=URL rl.selection=written_benches
    # columns: prompt, reference (a correct module), completion; a model writes the benches and repairs them

Written benches that a faulty module passes are left out (`selections/written_benches`).

Differs: one step of the default setting is the whole round, in ``learner.minibatches`` updates; the best is compared
with the worst. By default test benches are generated with the formulas, where in the paper a language model writes
them. The number of samples and beta are ours.

Measured here: five seeds, half the default's specifications (`rl.prompts=80`), 100 held-out circuits: 29.0 % after SFT,
then 29.4 % with benches of all eight rows of inputs, +0.4 points [-3.6, +4.4], and 28.6 % with benches of four, which
put none of 397 pairs the other way round; VeriReason has 30.0 % after as many samples. One round of pairs does not move
the model at this size (docs/experiments/bench_rows.py). At five times the rate, one seed, it falls from 25.0 to 18.3 %
of 60.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.verilog import Verilog
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.verilog_round import verilog_round

PARENT: Final = "grpo"
SETTING: Final = "verilog_round"
PAPER: Final = "arXiv:2504.15804"
ROWS: Final = (261,)


def veriprefer(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: DPO on the best and the worst module of a group, ranked by correct rows."""
    recipe = keep_verifier(with_rl(recipe or verilog_round()))
    stage = rl_of(recipe)
    stage = replace(
        stage,
        reward=Verilog(right=1.0, compiles=0.0, structure=0.0, partial=1.0),
        filters={**every_group(stage), "best_and_worst": BestAndWorst()},
        objective=Pairwise(loss=DPO()),
        reducer=Sequences(),
    )
    recipe = with_models(replace(recipe, name="veriprefer"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
