"""Wanted words: a new model of 150k weights writes lists of words, of which two are wanted that no prompt names.

It imitates lists of all lengths, under directions that they have nothing to do with. Held-out lists are rated by
counting, under five directions; one is right from a score of 2.5 along its direction.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.directional import Directional
from posttrain.components.rewards.wanted_words import WantedWords as Counted
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.directed import Directed
from posttrain.components.tasks.wanted_words import WantedWords
from posttrain.datasets.wanted_words import WORDS
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

ANGLES = (-45.0, -22.5, 0.0, 22.5, 45.0)


def wanted_words() -> Recipe:
    """150 updates of imitation; the recipe's own tasks are 300 labelled lists."""
    recipe = demonstrations()
    lists = Directed(tasks=WantedWords(size=2000, seed=1))
    imitation = replace(
        sft_of(recipe), tasks=lists, epochs=1000.0, max_steps=150, learner=Learning(optimizer=AdamW(lr=3e-3))
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, context=64, words=tuple(f" {word}" for word in WORDS))
    return replace(
        recipe,
        name="wanted_words",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=WantedWords(size=300, labels=True),
        stages={"sft": imitation},
        evaluation=Evaluation(
            tasks=Directed(tasks=WantedWords(size=50, seed=2), angles=ANGLES),
            verifier=Directional(of=Counted(), correct_at=2.5),
            sampling=Sampling(max_tokens=20),
        ),
    )
