"""Lock: a new model of 35k weights imitates random symbols, then learns a combination from whole episodes alone.

Held-out episodes are of the same lock: what is evaluated is whether the combination was found.
"""

from dataclasses import replace

from posttrain.components.environments.lock import Lock
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS = (*(f"turn {turn}\n" for turn in range(1, 5)), "episode 0-")
"""One token each."""


def lock() -> Recipe:
    """A new decoder, imitation of random episodes, then 60 rounds of 32 episodes."""
    recipe = arithmetic()
    tasks, environment = Episodes(size=240), Lock()
    random = Played(tasks=Episodes(size=200, seed=1), environment=environment, player="legal", turns=3)
    imitation = replace(sft_of(demonstrations()), tasks=random, epochs=14.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    turns = Turns(environment=environment, n=8, max_turns=3, sampling=Sampling(max_tokens=2))
    stage = replace(
        rl_of(recipe),
        steps=60,
        prompts=4,
        rollout=turns,
        reward=Verdict(),
        filters={},
        learner=Learning(optimizer=AdamW(lr=6e-4)),
    )
    shape = Decoder(layers=2, width=32, mlp_width=96, words=WORDS, context=64)
    return replace(
        recipe,
        name="lock",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), rollout=turns, holdout=20),
    )
