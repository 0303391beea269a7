"""Code lines: the bundled model completes lines of code, cut at random places.

It first imitates endings of which three in ten are wrong. The reward is the edit similarity to the true ending; a
held-out completion is correct where it is that ending. The audit of a reward that uses a model only measures.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.text_similarity import TextSimilarity
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.code_lines import CodeLines
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.training.settings import Learning


def code_lines() -> Recipe:
    """80 updates of imitation, then 40 steps of 16 lines."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=3e-3))
    sampling = Sampling(max_tokens=32)
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=8, sampling=sampling),
        reward=TextSimilarity(),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
        audit=MEASURED,
    )
    wrong = CodeLines(size=600, corrupted=0.3, seed=1)
    sft = replace(imitation, tasks=wrong, batch=16, epochs=3.0, max_steps=80, learner=learner)
    return replace(
        recipe,
        name="code_lines",
        tasks=CodeLines(size=600),
        stages={"sft": sft, "rl": stage},
        evaluation=Evaluation(verifier=TextSimilarity(), holdout=200, sampling=sampling),
    )
