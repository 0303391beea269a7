"""DeepTheorem: GRPO with a reward for the verdict on a statement, on a true and a false variant of each, behind gates.

Source: the release of DeepTheorem (Jiahao004/DeepTheorem): 0 or 1 for ``proved`` or ``disproved`` in a box, three rules
before it against echoes, dialogues with itself and nonsense (`rewards/proved`), no KL, no imitation. Each theorem gives
a true and a false statement, two prompts of their own. The evaluation counts a theorem only if all its variants are
right.

    posttrain run deeptheorem tasks=mine.jsonl model=FOLDER
    # columns: prompt, truth (true or false), variant_of (the theorem, for accuracy_of_all_variants)

The release reads verdicts otherwise in its evaluation: `evaluation.verifier={kind: proved, parser: evaluation}`.

Differs: groups of the setting, 64 in the release. Statements are sums, and the bundled model first imitates worked
verdicts, which is the setting's. Proofs are not graded.

Measured here over five seeds (`identities`, 80 updates of imitation, 20 steps): with true statements alone 49.7 %
[49.3, 50.2] of the held-out verdicts are right and 0 % of the statements in both variants; with both variants 52.9 %
[47.7, 58.1] and 11.0 % [0.0, 24.4], above 0 in three seeds of five: no difference that five seeds can show.
Without the gates the runs come out the same: no gate changed a reward that was learned from.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.proved import Proved
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.identities import identities

PARENT: Final = "grpo"
SETTING: Final = "identities"
PAPER: Final = "DeepTheorem"
ROWS: Final = (256,)


def deeptheorem(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the verdict as the only reward, behind gates."""
    recipe = grpo(recipe or identities())
    stage = rl_of(recipe)
    own = stage.reward if isinstance(stage.reward, Proved) else Proved()
    stage = replace(stage, reward=replace(own, gates=True))
    return with_stage(replace(recipe, name="deeptheorem"), stage)
