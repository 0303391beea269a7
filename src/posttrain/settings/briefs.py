"""Briefs: a new model of 200k weights asks a user for facts that are missing in a brief, in eight turns.

It first imitates random questions.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.briefs import Briefs
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

FACTS: Final = 12
WORDS: Final = (
    *(f"?{fact}" for fact in range(1, FACTS + 1)),
    *(f" {fact}" for fact in range(1, FACTS + 1)),
    *(f"{fact}\n" for fact in range(1, FACTS + 1)),
    *("Known:", "known\n", "What?\n", "Bye.\n", "episode 0-"),
)
"""One token each."""


def briefs() -> Recipe:
    """A new decoder, imitation of random questions, then groups of 8 dialogues rewarded for every answer."""
    recipe = arithmetic()
    environment, tasks = Briefs(facts=FACTS, hidden=4, process="answered"), Episodes(size=400)
    shown = Played(tasks=tasks, environment=environment, player="legal", turns=8)
    imitation = replace(sft_of(demonstrations()), tasks=shown, epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Turns(environment=environment, n=8, max_turns=8, sampling=Sampling(max_tokens=4)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="briefs",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), holdout=40, samples=2),
    )
