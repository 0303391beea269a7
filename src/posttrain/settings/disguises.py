"""Disguises: texts that may be harmful, a generator that writes them anew, and a guard that reads them.

The bundled model first imitates texts with disguised words. The guard, of the same model, learns from seeds and from
what it got wrong; the generator stays as it is.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.rpo import RPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.same_words import SameWords
from posttrain.components.rollouts.independent import Independent
from posttrain.components.schedules.constant import Constant
from posttrain.components.tasks.disguised import Disguised
from posttrain.datasets.disguises import HARMS
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.guard_rounds import GuardRounds
from posttrain.training.settings import Learning


def disguises() -> Recipe:
    """A warm-up of 120 steps of 32, then five rounds with 64 seeds of 8 candidates each."""
    recipe = demonstrations()
    imitation = sft_of(recipe)
    warm_up = replace(
        imitation,
        tasks=Disguised(size=3000, seed=1, odd=0.15),
        max_steps=120,
        epochs=2.0,
        learner=replace(imitation.learner, optimizer=AdamW(lr=1e-3)),
    )
    rounds = GuardRounds(
        rollout=Independent(n=8, sampling=Sampling(max_tokens=40, temperature=0.9)),
        loss=RPO(loss=DPO(beta=0.01, reference="old"), eta=0.4, length="mean", times_beta=False),
        reducer=Sequences(),
        consistent=SameWords(),
        learns=False,
        rounds=5,
        learner=Learning(optimizer=AdamW(lr=1e-4), schedule=Constant(), minibatches=4),
        guard_learner=Learning(optimizer=AdamW(lr=1e-3), schedule=Constant(), epochs=2, minibatches=20),
    )
    guard = Model(source="pebble", head="reward", outputs=len(HARMS), trained=True)
    return replace(
        recipe,
        name="disguises",
        models={**recipe.models, "guard": guard, "start": replace(guard, trained=False)},
        tasks=Disguised(size=460),
        stages={"sft": warm_up, "rounds": rounds},
        evaluation=Evaluation(verifier=SameWords(), holdout=60, sampling=Sampling(max_tokens=40, temperature=0.0)),
    )
