"""VeriReason: think, then write a Verilog module; paid by a test bench, and for likeness to a module that is right.

Source: Wang et al. 2025, arXiv:2505.11849, and its release at d215b7fe: 0 for what does not compile, 0.1 plus up to 1
for likeness to the reference for what does, 2.1 for what passes, and 0.1 more for the form; GRPO with 8 attempts at
temperature 0.5 and a KL to the model of the imitation before it.

``reward.parts.bench.structure=0`` pays for passing alone.

Differs: rows that are missing are wrong (`posttrain.components.rewards.verilog`). No penalty for repetition while
sampling. Formulas and test benches are generated, and so is the model; sizes and learning rates are for it.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.sum import Sum
from posttrain.components.rewards.verilog import Verilog
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.circuits import MODULE, SIGNS, Circuits
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe

ROWS: Final = (83,)

FORM: Final = r"(?s)<think>.*</think>.*<answer>.*```(verilog|v)\n.*```.*</answer>"

WORDS: Final = (
    *("Verilog: ", "not ", "then ", *(f"{operator} " for operator in SIGNS), *(f" {sign} " for sign in SIGNS.values())),
    *("<think>", "</think>\n<answer>\n```verilog\n", *MODULE.split("{}"), "\n```\n</answer>"),
)
"""One token each, so that an answer is short."""


def verireason(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: modules as tasks, judged by simulating them and by their form, after imitation."""
    recipe = recipe or grpo()
    imitation = sft_of(sft())
    imitation = replace(imitation, max_steps=70, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = rl_of(recipe)
    stage = replace(
        stage,
        steps=30,
        prompts=16,
        rollout=Independent(n=8, sampling=Sampling(temperature=0.5, max_tokens=64)),
        reward=Sum(parts={"bench": Verilog(), "form": Regex(pattern=FORM, matched=0.1)}),
        penalties={"kl": KL()},
        learner=replace(stage.learner, optimizer=AdamW(lr=5e-5)),
    )
    shape = Decoder(layers=2, width=128, context=128, words=WORDS)
    changed = replace(
        recipe,
        name="verireason",
        tasks=Circuits(size=4000),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verilog(right=1.0, compiles=0.0, structure=0.0), holdout=60),
    )
    policy = Model(source="new", shape=shape, trained=True)
    return replace(changed, models={**changed.models, "policy": policy, "reference": Model(source="role:policy")})
