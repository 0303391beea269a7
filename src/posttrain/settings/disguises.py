"""Disguises: texts that may be harmful, a generator that writes them anew, and a guard that reads them.

Both are new models of 94k weights, with each form of each word as one token. The generator first imitates texts with
disguised words, and then stays as it is. The guard learns from seeds and from what it got wrong.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.rpo import RPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.same_words import SameWords
from posttrain.components.rollouts.independent import Independent
from posttrain.components.schedules.constant import Constant
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.disguised import Disguised
from posttrain.datasets.disguises import HARMS, tokens
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.guard_rounds import GuardRounds
from posttrain.training.settings import Learning


def disguises() -> Recipe:
    """A warm-up of 350 steps of 32, then eight rounds with 128 seeds of 8 candidates each."""
    recipe = demonstrations()
    imitation = sft_of(recipe)
    warm_up = replace(
        imitation,
        tasks=Disguised(size=3000, seed=1, odd=0.15),
        max_steps=350,
        epochs=10.0,
        learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)),
    )
    rounds = GuardRounds(
        rollout=Independent(n=8, sampling=Sampling(max_tokens=16, temperature=0.9)),
        loss=RPO(loss=DPO(beta=0.01, reference="old"), eta=0.4, length="mean", times_beta=False),
        reducer=Sequences(),
        consistent=SameWords(),
        learns=False,
        rounds=8,
        batch=128,
        learner=Learning(optimizer=AdamW(lr=3e-4), schedule=Constant(), epochs=2),
        guard_learner=Learning(optimizer=AdamW(lr=3e-3), schedule=Constant(), epochs=10, minibatches=20),
    )
    shape = Decoder(layers=2, width=64, mlp_width=128, words=("anew:", "\n:", *tokens()), context=64)
    guard = Model(source="new", shape=shape, head="reward", outputs=len(HARMS), trained=True)
    return replace(
        recipe,
        name="disguises",
        models={
            "policy": Model(source="new", shape=shape, trained=True),
            "guard": guard,
            "start": replace(guard, trained=False),
        },
        tasks=Disguised(size=460),
        stages={"sft": warm_up, "rounds": rounds},
        evaluation=Evaluation(verifier=SameWords(), holdout=60, sampling=Sampling(max_tokens=16, temperature=0.0)),
    )
