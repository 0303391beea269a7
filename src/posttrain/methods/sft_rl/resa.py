"""Resa: a base model learns to work with a sparse autoencoder of a reasoning model's states.

Source: Wang et al. 2025, arXiv:2506.09967, and its release. The stages of the recipe train the source model; a sparse
autoencoder is trained on its states after one layer, on prompts with verified answers and no reasoning; the base, with
adapters of rank 32 and alpha 128 on all projections, is tuned with its own states replaced by their reconstructions, by
KL(base || tuned) summed over tokens. Then the sparse autoencoder is taken out and the adapters are merged.

    posttrain run resa tasks=mine.jsonl stages.sae.layer=12 stages.tune.layer=12 model=FOLDER   # prompt, answer

The learning signal is what the autoencoder loses of the base's states; nothing else of the source reaches the base
(`posttrain.stages.sae_tuning`). Controls: `stages.sae.of=base`, an autoencoder of the base itself, and
`stages.tune.inserted=noise`. The adapters alone are in the checkpoints, to be attached to other models of the shape.

Differs: adapters have no dropout. The paper's updates have one text of 2,048 tokens and the rate 1e-6; here they have
16 short ones and 1e-4.

Measured here (docs/experiments/resa.py, 5 seeds): the bundled model has 20.5 % of 200 held-out sums, the source 82.4 %.
Tuning at layer 1 of 4 changes that by +0.9 points [+0.1, +1.7] with the autoencoder of the source's states, +0.0 [-1.3,
+1.3] with one of its own, and -0.6 [-1.3, +0.1] with noise of the same size; at layers 0 and 2 by -0.4 [-2.1, +1.3] and
-0.5 [-1.8, +0.8] with that of the source. The source's is no better than its own by a difference that five seeds can
show, +0.9 [-0.4, +2.2]; than noise it is, +1.5 [+0.2, +2.8]. The divergence that is learned from falls from 0.155 to
0.050 nats a token. Of the source's 62 points at most two arrive, where the claim is that most do: what is learned is to
work with what the autoencoder loses.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.merges.soup import Soup
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.constant import Constant
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import LoRA, Model
from posttrain.recipes.changes import with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Stage
from posttrain.stages.merge import Merging
from posttrain.stages.sae import SparseAutoencoder
from posttrain.stages.sae_tuning import SAETuning
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2506.09967"
ROWS: Final = (117,)


def resa(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the result of its stages is only the source of a sparse autoencoder, by which a copy of the
    base is tuned.
    """
    recipe = grpo(recipe or arithmetic())
    rate = Learning(optimizer=AdamW(lr=1e-4))
    stages: dict[str, Stage] = {
        "base": Merging(role="base", of=("policy",), method=Soup()),
        **recipe.stages,
        "source": Merging(role="source", of=("policy",), method=Soup()),
        "sae": SparseAutoencoder(of="source"),
        "tune": SAETuning(role="tuned", reducer=Constant(length=1.0), learner=rate, max_steps=120),
        "result": Merging(role="policy", of=("tuned",), method=Soup()),
    }
    roles = {
        "base": Model(source="made"),
        "source": Model(source="made"),
        "sae": Model(source="made"),
        "tuned": Model(source="role:base", trained=True, lora=LoRA(rank=32, alpha=128.0)),
    }
    return replace(with_models(recipe, roles), name="resa", stages=stages)
