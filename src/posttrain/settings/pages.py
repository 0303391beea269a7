"""Pages: a new model of 200k weights answers questions about the friends of people, with a search.

It first imitates worked questions, and stops early enough to leave something to learn. A name is one token, and pages
begin with their titles, so that a search for a name finds its page.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.archive import Archive
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.token_recall import TokenRecall
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.pages import Pages
from posttrain.components.tasks.played import Played
from posttrain.datasets.pages import JOBS, MOST, TOWNS
from posttrain.datasets.pages import pages as made
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS: Final = (
    *("<think>so</think>", "<search>", "</search>", "<answer>", "</answer>", "nothing", " <information>\n", "[mask]"),
    *("\n</information>\n", "Fill the masks: ", " lives in ", ", works as ", ", is a friend of ", " of ", ".\n"),
    *("Q: where does the friend of ", " live?\n", "Q: what does the friend of ", " do?\n"),
    *(page.name for page in made(MOST)),
    *TOWNS,
    *JOBS,
)
"""One token each."""


def pages() -> Recipe:
    """A new decoder, imitation of worked questions, then groups of 8 rollouts."""
    recipe = arithmetic()
    people = 100
    environment = Archive(pages=Pages(size=people, what="titled"))
    tasks = Pages(size=people)
    shown = Played(tasks=tasks, environment=environment, player="solver", turns=3)
    learner = Learning(optimizer=AdamW(lr=3e-3))
    imitation = replace(sft_of(demonstrations()), tasks=shown, epochs=40.0, max_steps=120, learner=learner)
    reward = TokenRecall(measure="exact")
    stage = replace(
        rl_of(recipe),
        steps=25,
        prompts=16,
        rollout=Turns(environment=environment, n=8, max_turns=5, sampling=Sampling(max_tokens=20)),
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="pages",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=reward, holdout=60),
    )
