"""Keys: a new model of 200k weights imitates an expert in easy rooms, and then acts in easy and hard ones.

In hard rooms the expert fails, and has an episode of each failure. Held-out rooms are hard.
"""

from dataclasses import replace

from posttrain.components.environments.keys import Keys
from posttrain.components.filters.outcome import Outcome
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

WORDS = (
    *(f"{letter}{distance} " for letter in "kd" for distance in range(-6, 7)),
    *(f"{held}{state}\n" for held in ("", "held ") for state in ("clean", "rusty")),
    *("lost\n", "episode 0-"),
)
"""One token each."""


def keys() -> Recipe:
    """A new decoder, imitation in easy rooms, then four rounds of own rollouts that open the door."""
    recipe = arithmetic()
    tasks = Episodes(size=200)
    easy, rooms = Keys(which="easy"), Keys(which="mixed", flawed=True)
    shown = Played(tasks=tasks, environment=easy, player="solver", turns=easy.horizon)
    failed = Played(tasks=Episodes(size=60), environment=rooms, player="solver", turns=rooms.horizon)
    imitation = replace(sft_of(demonstrations()), tasks=shown, epochs=6.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    turns = Turns(environment=rooms, n=8, max_turns=rooms.horizon, sampling=Sampling(max_tokens=3))
    stage = replace(
        rl_of(recipe),
        steps=4,
        prompts=60,
        tasks=failed,
        rollout=turns,
        reward=Verdict(),
        filters={"outcome": Outcome()},
        learner=Learning(optimizer=AdamW(lr=1e-3), epochs=4, minibatches=8),
    )
    hard = replace(turns, environment=Keys(which="hard"))
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="keys",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), rollout=hard, holdout=40, samples=2),
    )
