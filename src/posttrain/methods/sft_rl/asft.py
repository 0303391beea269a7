"""ASFT: SFT with each token's loss weighted by its probability, and a full-vocabulary KL anchor to the base model.

Source: Zhu et al. 2025, arXiv:2509.23753, equation 6: for each token y of a demonstration the loss is p(y) (-log p(y))
+ lambda KL(base || p), where the factor p(y) has no gradient and base is the model before training. lambda = 0.05 (0.1
in the release). Equal to DFT in the first step, where the KL is 0.

Its ablations: `regularizers.anchor.coefficient=0` is DFT, with the KL to the base as a metric only;
`objective=likelihood` is SFT with the anchor; both together are SFT. `regularizers.anchor.direction=reverse` is the
anchor that fails in the paper.

    posttrain run asft tasks=mine.jsonl model=FOLDER    # columns: prompt, completion, answer (to evaluate)

Differs: the release takes each term's mean over a micro-batch, so that the result depends on micro-batches; here every
token of a step has the same weight. The base is a copy also where adapters are trained.

Measured here: one epoch of demonstrated products, 5 seeds: accuracy on sums, 65 % before, 93.6 % against 78.8 % of SFT
(+14.8 points [13.2, 16.4]), 80.4 % of DFT and 80.0 % of SFT with the anchor; KL(base || policy) 0.49 nats against 1.64,
1.47 and 1.53. On products, with 11.4 % accuracy before, there is no difference: 10.8 % against 12.0 %
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.unified import DFT
from posttrain.components.penalties.exact_kl import ExactKL
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations

PARENT: Final = "sft"
SETTING: Final = "demonstrations"
PAPER: Final = "arXiv:2509.23753"
ROWS: Final = (156,)


def asft(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: token losses weighted by their probability, and a KL anchor to the initial model."""
    recipe = with_imitation(recipe or demonstrations())
    stage = sft_of(recipe)
    stage = replace(stage, objective=DFT, regularizers={**stage.regularizers, "anchor": ExactKL()})
    return with_stage(with_models(replace(recipe, name="asft"), {"reference": Model(source="role:policy")}), stage)
