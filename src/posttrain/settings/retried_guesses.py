r"""Retried guesses: a new model of 200k weights names the box that its prompt names, and tries again.

It first imitates random answers in dialogues of five turns, to learn the format. Held-out questions have five greedy
turns without an oracle: each answer is called wrong, also a right one, and the last one counts.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.retried import Retried
from posttrain.components.tasks.guessing import Guessing
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.guessing import guessing
from posttrain.training.settings import Learning

FEEDBACK: Final = "No.\nBox:"
"""What follows an answer; one token."""


def retried_guesses() -> Recipe:
    """Imitation of random answers, then 40 steps of 32 prompts with 16 rollouts each."""
    recipe = guessing()
    tasks, sampling = Guessing(size=1000, hidden=0.0), Sampling(max_tokens=4)
    imitation = sft_of(recipe)
    played = imitation.tasks
    assert isinstance(played, Played)
    reward = Match(extract=("whole",))
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=32,
        rollout=Independent(n=16, sampling=sampling),
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=1e-3), epochs=4),
    )
    return replace(
        recipe,
        name="retried_guesses",
        tasks=tasks,
        stages={"sft": replace(imitation, tasks=replace(played, tasks=tasks)), "rl": stage},
        evaluation=Evaluation(verifier=reward, rollout=Retried(n=1, feedback=FEEDBACK, sampling=sampling), holdout=200),
    )
