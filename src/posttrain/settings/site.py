"""Site: a new model of 200k weights follows four links, one of five each, and only the end shows whether all are right.

Four wrong links lead back to their page. It first imitates, without these, random links and a player who is always
wrong on two pages of five.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.site import LETTERS, Site
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

WORDS: Final = (*(f"\n{page}{letter}\n" for page in range(5) for letter in LETTERS), *LETTERS, "episode 0-")
"""One token each."""


def site() -> Recipe:
    """A new decoder, imitation of random and of flawed episodes, then groups of 5 on 16 sites per step."""
    recipe = arithmetic()
    tasks = Episodes(size=400)
    played = {
        "random": Played(tasks=tasks, environment=Site(), player="legal", turns=4),
        "flawed": Played(tasks=tasks, environment=Site(flawed=True), player="solver", turns=4),
    }
    imitation = replace(
        sft_of(demonstrations()),
        tasks=Mixture(sources=played),
        epochs=4.0,
        learner=Learning(optimizer=AdamW(lr=3e-3)),
    )
    stage = replace(
        rl_of(recipe),
        steps=12,
        prompts=16,
        rollout=Turns(environment=Site(spare=4), n=5, max_turns=8, sampling=Sampling(max_tokens=3)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="site",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), holdout=60),
    )
