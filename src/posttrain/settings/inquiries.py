"""Inquiries: a new model of 200k weights looks a digit up in two sources, of which one may lie.

It first imitates a player who takes any action, to learn the format.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.sources import REMINDER, TAGS, Sources
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

WORDS: Final = (
    *(f"<{tag}>" for tag in TAGS),
    *(f"</{tag}>" for tag in TAGS),
    *("who", "official ", " nothing", "ok", REMINDER, "episode 0-"),
)
"""One token each."""


def inquiries() -> Recipe:
    """A new decoder, imitation of random actions, then groups of 8 episodes."""
    recipe = arithmetic()
    environment, tasks = Sources(), Episodes(size=1000)
    random = Played(tasks=tasks, environment=Sources(player="random"), player="solver", turns=8)
    imitation = replace(
        sft_of(demonstrations()), tasks=random, max_steps=250, epochs=45.0, learner=Learning(optimizer=AdamW(lr=3e-3))
    )
    stage = replace(
        rl_of(recipe),
        steps=15,
        prompts=8,
        rollout=Turns(environment=environment, n=8, max_turns=8, sampling=Sampling(max_tokens=8)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="inquiries",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(), holdout=60),
    )
