"""Shop: a new model of 200k weights buys one item behind six calls, in ten turns, and three checks score the end.

It first imitates random calls and, in every fifth episode, the shortest plan.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.shop import ITEMS, Shop
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS: Final = (
    *("login", "list", "add ", "address", "order", "done", "episode "),
    *(f"\n{text}\n" for text in ("Hello.", "Added.", "Noted.", "Ordered.", "Error.", "Bye.")),
    *(f"Buy a {item}." for item in ITEMS),
    *ITEMS,
)
"""One token each."""


def shop() -> Recipe:
    """A new decoder, imitation of random and of good episodes, then groups of 8."""
    recipe = arithmetic()
    environment, tasks = Shop(), Episodes(size=400)
    played = {
        "random": Played(tasks=tasks, environment=environment, player="legal", turns=10),
        "solved": Played(tasks=Episodes(size=100, seed=1), environment=environment, player="solver", turns=10),
    }
    learner = Learning(optimizer=AdamW(lr=3e-3))
    imitation = replace(sft_of(demonstrations()), tasks=Mixture(sources=played), epochs=4.0, learner=learner)
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Turns(environment=environment, n=8, max_turns=10, sampling=Sampling(max_tokens=4)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="shop",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), holdout=40, samples=2),
    )
