"""VeriReason: GRPO for reasoning Verilog generation, rewarded by a test bench and by similarity to a reference module.

Source: Wang et al. 2025, arXiv:2505.11849, and its release at d215b7fe: 0 for what does not compile, 0.1 plus up to 1
for similarity to the reference for what does, 2.1 for what passes, and 0.1 more for the format; GRPO with 8 rollouts at
temperature 0.5 and a KL to the SFT model.

    posttrain run verireason tasks=mine.jsonl "models.policy={source: FOLDER, trained: true}"
    # columns: prompt, testbench, rows (the lines that it prints for a correct module), reference (a correct module),
    #          completion (an answer to imitate: <think>...</think><answer>```verilog ...```</answer>)

``reward.parts.bench.structure=0`` rewards passing alone.

Differs: missing rows count as incorrect (`posttrain.components.rewards.verilog`). No penalty for repetition while
sampling.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.penalties.kl import KL
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.sum import Sum
from posttrain.components.rewards.verilog import Verilog
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import keep_verifier, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.verilog import verilog

PARENT: Final = "grpo"
SETTING: Final = "verilog"
PAPER: Final = "arXiv:2505.11849"
ROWS: Final = (83,)
INHERITED: Final = {"rollout": "no penalty for repetition while sampling; the release has one of 1.3"}

FORM: Final = r"(?s)<think>.*</think>.*<answer>.*```(verilog|v)\n.*```.*</answer>"


def verireason(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: rewards for the similarity of failing modules and for the format; KL in the loss."""
    recipe = keep_verifier(with_rl(recipe or verilog()))
    parts = {"bench": Verilog(), "form": Regex(pattern=FORM, matched=0.1)}
    stage = rl_of(recipe)
    stage = replace(stage, reward=Sum(parts=parts), penalties={**stage.penalties, "kl": KL()})
    recipe = with_models(replace(recipe, name="verireason"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
