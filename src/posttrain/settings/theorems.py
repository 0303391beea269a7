"""Theorems: the bundled model derives sums of one-digit numbers step by step, and writes sums of its own.

It first imitates proofs of sums of two or three numbers, a few of longer ones, and conjectures. Targets have two to
five numbers, or six or seven, which are the hard ones. Held-out targets are of all kinds.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.derivation import Derivation
from posttrain.components.rollouts.independent import Independent
from posttrain.components.schedules.constant import Constant
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.theorems import LEMMA, THEOREM, Theorems
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.conjectures import Conjectures
from posttrain.training.settings import Learning

PROVE = "Q: {statement}\nA:"


def theorems() -> Recipe:
    """A warm-up of 120 steps of 32, then eight rounds of expert iteration on 200 targets."""
    recipe = demonstrations()
    imitation = sft_of(recipe)
    reward = Derivation()
    warm_up = replace(
        imitation,
        tasks=Mixture(
            sources={
                "proofs": Theorems(size=1500, which="proofs", seed=1),
                "long": Theorems(size=100, which="proofs", seed=3, terms=(4, 7)),
                "conjectures": Theorems(size=1500, which="conjectures", seed=2, terms=(2, 5)),
            }
        ),
        max_steps=120,
        epochs=2.0,
        learner=replace(imitation.learner, optimizer=AdamW(lr=1e-3)),
    )
    rounds = Conjectures(
        rollout=Independent(n=8, sampling=Sampling(max_tokens=80)),
        reward=reward,
        reducer=Tokens(),
        request=THEOREM,
        lemma=LEMMA,
        prove=PROVE,
        conjecture=False,
        rounds=8,
        retrain=False,
        learner=Learning(optimizer=AdamW(lr=3e-4), schedule=Constant(), minibatches=8),
    )
    return replace(
        recipe,
        name="theorems",
        tasks=Theorems(size=300, terms=(2, 5), hard_share=0.35),
        stages={"sft": warm_up, "rounds": rounds},
        evaluation=Evaluation(verifier=reward, holdout=100, sampling=Sampling(max_tokens=80, temperature=0.0)),
    )
