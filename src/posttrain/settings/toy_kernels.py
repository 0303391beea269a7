r"""Toy kernels: a new model writes kernels in a small language for programs such as ``return 3 * x + y``.

It first imitates 220 programs, of which one in eleven calls the library in place of a kernel. The reward is for values
that kernels of the program's own have written; held-out programs have other constants.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.kernel import Kernel
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.kernels import Kernels
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS: Final = (
    *("def f(x, y):\n    return ", "reference(x, y)\n", "@kernel\ndef k(i, x, y, out):\n    out[i] = ", "x[i]", "y[i]"),
    *("\n\ndef f(x, y):\n    out = empty(x)\n    k[len(x)](x, y, out)\n    return out\n", " * ", " + ", " - "),
)
"""One token each, so that a program is short."""


def toy_kernels() -> Recipe:
    """A new decoder, 80 updates of imitation, then 80 steps of 16 programs with 8 answers each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=3e-3))
    reward = Kernel(dialect="toy")
    stage = replace(
        rl_of(recipe),
        steps=80,
        prompts=16,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=32)),
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    shape = Decoder(layers=2, width=128, context=96, words=WORDS)
    tasks = Kernels(size=220, level=1, largest=29, stated=False, cheats=1 / 11)
    return replace(
        recipe,
        name="toy_kernels",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": replace(imitation, batch=22, epochs=20.0, max_steps=80, learner=learner), "rl": stage},
        evaluation=Evaluation(tasks=replace(tasks, size=100, seed=1, cheats=0.0), verifier=reward),
    )
