"""Scored sums: solutions of sums are scored by a judge in JSON.

Policy and judge are the bundled model; the judge's base imitates ratings whose reasons and scores are by chance, so
that it can write their form and nothing more. Tasks have pairs of a worked solution and a bare result, for judges that
learn. Held-out answers are compared with the reference.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.annotators.noise import Noise
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.json_score import JsonScore
from posttrain.components.rewards.match import Match
from posttrain.components.tasks.score_items import ScoreItems
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.datasets.judge_prompts import JudgePrompt
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations

PROMPT: Final = JudgePrompt(rubric="", item="{question}{raw_response}\nJ:", scale=(1.0, 9.0), chat=False)
"""For the bundled model: a question, a solution, and the mark of a rating."""


def scored_sums() -> Recipe:
    """40 steps of imitation, then 25 of reinforcement on 2,000 sums."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    tasks = WorkedSolutions(size=2000, terms=(2, 3), rejected="unworked")
    form = replace(
        imitation,
        role="instructed",
        tasks=ScoreItems(tasks=replace(tasks, seed=1, annotators=(Noise(rate=0.5, spread=0.0),)), prompt=PROMPT),
        max_steps=40,
        learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)),
    )
    reward = JsonScore(prompt=PROMPT, sampling=Sampling(temperature=0.0, max_tokens=48), unreadable=0.0)
    recipe = replace(
        recipe,
        name="scored_sums",
        tasks=tasks,
        stages={"form": form, "rl": replace(rl_of(recipe), steps=25, reward=reward)},
        evaluation=Evaluation(verifier=Match()),
    )
    models = {"instructed": Model(source="pebble", trained=True), "judge": Model(source="role:instructed")}
    return with_models(recipe, models)
