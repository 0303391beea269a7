"""Workshop: a new model of 200k weights imitates random play in a workshop with hidden preconditions.

It has learned what actions there are, and not which of them work in which state. Held-out tasks are played behind the
environment `foreseen`, whose rules are learned without training: `posttrain diagnose foresight`.
"""

from dataclasses import replace

from posttrain.components.environments.foreseen import Foreseen
from posttrain.components.environments.workshop import NEEDS, WORDS, Workshop
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

TOKENS = (
    *(f"{name}:{word} " for name in NEEDS if name != "paint" for word in WORDS.get(name, ("no", "yes"))),
    *NEEDS,
    *("rain\n", "sun\n", "fails ", "no\n", "episode 0-"),
)
"""One token each."""


def workshop() -> Recipe:
    """A new decoder, and imitation of random play."""
    recipe = demonstrations()
    environment, tasks = Workshop(), Episodes(size=240)
    shown = Played(tasks=tasks, environment=environment, player="legal", turns=environment.horizon)
    stage = replace(sft_of(recipe), tasks=shown, batch=16, epochs=3.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    behind = Foreseen(environment=environment, feedback="no\n{state}")
    rollout = Turns(environment=behind, n=1, max_turns=80, sampling=Sampling(max_tokens=3))
    shape = Decoder(layers=2, width=64, mlp_width=192, words=TOKENS)
    return replace(
        recipe,
        name="workshop",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), holdout=40, rollout=rollout),
    )
