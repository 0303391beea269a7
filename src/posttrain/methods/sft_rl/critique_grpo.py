"""Critique-GRPO: each attempt is criticised and refined, and one refinement joins the group under the bare question.

Source: Zhang et al. 2025, arXiv:2506.03106, and its released code: 8 attempts a question, of which the first gives way
to one refinement, the first right one or else the first of the best. Reward minus group mean over the group's
deviation; own tokens weigh p / p_old without clipping, a refinement's tokens f(p) = p / (p + 0.1), whose pull on log p
is strongest at p = 0.1; the sum over tokens is divided by a constant; entropy bonus 0.001; no KL.

Critiques say whether the attempt is right, and the answer (``simple_gt``, the default script's). With
``rollout.critique=text`` a critic writes them: `models.judge` is any model, or the address of one that is served.

Differs: the entropy bonus is summed as the loss is, where the code takes its mean over tokens. The bundled model knows
no English: critiques are a mark and the answer, and it is taught first, by imitation on other sums, what a refinement
looks like. Its tasks are sums of four or five numbers: bare attempts at them succeed now and then, where at sums of
two numbers of three digits none does and nothing is learned. Sizes are for it too.

Measured here: against GRPO after the same lesson (12 steps of 8 tasks, 5 seeds): held-out accuracy 34.2 % against 32.4
%, +1.8 points [-0.4, +4.0]; groups of equal rewards 57.1 % against 59.4 %, -2.3 points [-4.4, -0.2]
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.filters.best_demonstration import BestDemonstration
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.objectives.unified import LUFFY, Unified
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.entropy import Entropy
from posttrain.components.reducers.constant import Constant
from posttrain.components.rollouts.critiqued import Critiqued
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.refinements import Refinements
from posttrain.datasets.templates import Critiques
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipe.changes import rl_of, sampling_of, sft_of
from posttrain.recipe.tree import Recipe

ROWS: Final = (200,)

TEXTS: Final = Critiques(
    right="ok",
    wrong="no",
    right_revealed="ok {answer}",
    wrong_revealed="no {answer}",
    request="{question}",
    refinement="{question}{attempt}\n{critique}\nA:",
)
"""For a model that knows no English: ``Q: 347+285\\nA: #### 531\\nno 632\\nA:``."""


def critique_grpo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a lesson in refining, refinements in the groups, two weights, a constant length."""
    sums = Arithmetic(size=1000, terms=(4, 5))
    recipe = recipe or replace(grpo(), tasks=sums)
    stage = rl_of(recipe)
    lesson = Refinements(of=replace(sums, size=1500, seed=1), texts=TEXTS, bare=True)
    imitation = sft_of(sft())
    learner = replace(imitation.learner, optimizer=AdamW(lr=5e-4))
    stage = replace(
        stage,
        rollout=Critiqued(n=8, texts=TEXTS, sampling=sampling_of(stage)),
        filters={"refinement": BestDemonstration()},
        objective=ByOrigin(sampled=Unified(denominator="old"), demonstrated=LUFFY),
        penalties={"entropy": Entropy(coefficient=0.001)},
        reducer=Constant(length=64.0),
    )
    stages = {"lesson": replace(imitation, tasks=lesson, learner=learner), "rl": stage}
    return replace(recipe, name="critique_grpo", stages=stages)
