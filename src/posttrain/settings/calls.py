"""Calls: a new model of 50k weights imitates logged calls of donors, in most of which the plea does not suit the donor.

A second model, the controller, imitates better turns of finished calls. Held-out donors are called.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.donor import Donor
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.pleas import ANSWERS, OPENING, REQUEST, SHOWN, Pleas
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.hindsight import Hindsight
from posttrain.training.settings import Learning

WORDS: Final = (OPENING, *SHOWN, *ANSWERS, "hello", "hi", "story", "facts", "---\n", "better: ", "call 0-")
"""One token each."""


def calls() -> Recipe:
    """Imitation by the policy and by the controller, then of the log alone."""
    recipe = demonstrations()
    learner = Learning(optimizer=AdamW(lr=3e-3))
    imitation = replace(sft_of(recipe), batch=32, epochs=10.0, max_steps=60, learner=learner)
    controller = replace(imitation, tasks=Pleas(size=800, seed=1, which="hindsight"), max_steps=150, role="controller")
    stage = Hindsight(
        reward=Verdict(),
        reducer=Tokens(),
        simulator=Donor(),
        request=REQUEST,
        branches=0,
        max_turns=2,
        sampling=Sampling(max_tokens=3, stop=("\n",)),
        clone_steps=60,
        value_steps=0,
        batch=32,
        learner=learner,
        critic_learner=learner,
    )
    model = Model(source="new", shape=Decoder(layers=2, width=48, mlp_width=128, words=WORDS, context=96), trained=True)
    return replace(
        recipe,
        name="calls",
        models={"policy": model, "controller": model},
        tasks=Pleas(size=560),
        stages={"sft": imitation, "controller": controller, "hindsight": stage},
        evaluation=Evaluation(
            verifier=Verdict(),
            rollout=Turns(environment=Donor(), n=1, max_turns=2, sampling=stage.sampling),
            holdout=60,
        ),
    )
