"""AutoTriton: kernels for programs in PyTorch, rewarded for right values only where a rule finds kernels.

Source: arXiv:2507.05687, sections 3.1 to 3.3: after imitation of kernels, GRPO with 1 for an answer that is in the
kernel language by a rule and passes all tests, and 0 otherwise; advantages (r - mean) / std of a group, the mean over
tokens of each sequence, and a KL to the reference. Tasks have no target kernel: the program gives the
tests. Speed is not rewarded.

    posttrain run autotriton tasks=mine.jsonl model=FOLDER rl.reward.reward.dialect=triton
    # needs pip install 'posttrain[triton]'
    # columns: reference (in PyTorch), inputs (cases such as [["float32[3,17]", 2]]), completion (to imitate)

Differs: the rule (`RULE`), tolerances, the coefficient of the KL (0.04) and the inputs of the tests are ours, since
none is published; a result must also have been written by a kernel, and kernels must compile (`rewards/kernel`), since
programs may keep to a rule on their text, launch a kernel and return something else. There is no metric of speed, as
no GPU is used. By default kernels are written in a small language, and the imitation has no thoughts before them.

Measured here over five seeds (`docs/experiments/gated_kernels.py`): after imitation of about 200 programs with kernels
and 20 that call the library, 86.4 % [85.1, 87.8] of what is written after 80 steps calls it where only values count,
and none of 100 held-out programs has a kernel that gives its values; with the gate it is 0.4 % [0.1, 0.8]. Held out,
68.4 % [54.8, 82.0] are right after imitation and 77.2 % [72.1, 82.3] after the gated steps: +8.8 points [-1.0, 18.6],
more in each seed but one, where it is equal. Without imitation all rewards of ten steps are 0, and no group has a
gradient; with it 90 % of the groups have one.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.kernel import Kernel
from posttrain.components.rewards.uses import Uses
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.toy_kernels import toy_kernels

PARENT: Final = "grpo"
SETTING: Final = "toy_kernels"
PAPER: Final = "arXiv:2507.05687"
ROWS: Final = (96,)
RULE: Final = Uses(
    define=("kernel", "triton.jit"),
    imports=("torch", "triton", "triton.language", "math"),
    forbid=("reference", "handle", "runtime", "core", "semantic", "extra", "autotune"),
)
"""A kernel of the program's own is launched; the library, and what lies behind a value of the interpreter, are not
named."""


def autotriton(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: right values count only behind a rule on the text; means by sequence; a KL to the reference."""
    recipe = grpo(keep_verifier(recipe or toy_kernels()))
    stage = rl_of(recipe)
    own = stage.reward if isinstance(stage.reward, Kernel) else Kernel()
    stage = replace(
        stage,
        reward=Gated(reward=replace(own, strict=True, compiles=True), gate={"uses": RULE}),
        filters=every_group(stage),
        penalties={**stage.penalties, "kl": KL()},
        reducer=Sequences(),
    )
    recipe = with_models(replace(recipe, name="autotriton"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
