"""DPA: a direction stands in the prompt, and rounds of rejection sampling imitate the best text along it.

Source: Directional Preference Alignment, Wang et al. 2024, arXiv:2402.18571 (its release has the models, not the
training). A reward model with a head for each attribute learns labels, by squared errors over those that are known. A
direction v = (cos a, sin a) is drawn for each prompt, |a| up to 45 degrees, and stated in it; of n texts of the policy
under that prompt the one with the largest v1 helpfulness + v2 verbosity is imitated. Then the next round samples from
the new policy.

    posttrain run dpa tasks=mine.jsonl model=FOLDER
    # columns: prompt, completion, helpfulness, verbosity (numbers; a row may lack one)

A round is a stage: `round_1.selection.n=80`. Other attributes are `heads.labels` and `round_1.selection.reward.axes`,
for each round. `round_1.tasks.stated=false` takes the direction out of the prompts.

Differs: number of texts, rounds and distribution of angles are not in what could be read; here 8 texts, three rounds,
uniform angles. Each round has its own angles, and no data of the rounds before. Ratings are 0 to 4 where the paper's
are 20 s + 10 of them. The optimizer of each round begins anew; `round_2.learner.carried=true` goes on with its moments.

Measured here (docs/experiments/direction_tables.py: exact sums over tables of texts, five seeds, ratings of 0 to 4):
the score along the stated direction is 1.42 [1.38, 1.46] at first and 3.20, 3.82 and 3.94 [3.88, 4.00] after three
rounds, and the correlation of v2 with length 0, .62, .82 and .89 [.87, .92]: the curve expands with every round.
Without the direction in the prompt 3.40 [3.31, 3.48] and 0; angle 0 alone, one point, 3.58. One run of the default
setting, 49 held-out prompts: 3.45 after imitation, 3.50, 3.54 and 3.88 after the rounds, correlation .01 and .82.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.directional import Directional
from posttrain.components.rewards.heads import Heads
from posttrain.components.selections.sampled import Sampled
from posttrain.components.tasks.directed import Directed
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipes.changes import sft_of, with_models, with_stages_after
from posttrain.recipes.tree import Recipe
from posttrain.settings.wanted_words import wanted_words
from posttrain.stages import Stage
from posttrain.stages.heads import HeadsTraining
from posttrain.training.settings import Learning

PARENT: Final = "sft"
SETTING: Final = "wanted_words"
PAPER: Final = "arXiv:2402.18571"
ROWS: Final = (174,)

ROUNDS: Final = 3
AXES: Final = ("helpfulness", "verbosity")


def dpa(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: rounds on the policy's best texts along a stated direction, by heads that learned labels."""
    recipe = sft(recipe or wanted_words())
    stage, sampling = sft_of(recipe), recipe.evaluation.sampling
    own = Sampled(
        reward=Directional(of=Heads(weights=dict.fromkeys(AXES, 1.0)), axes=AXES),
        use="best_of",
        n=8,
        max_tokens=int(sampling.max_tokens) if sampling else 64,
    )
    heads = HeadsTraining(
        reducer=Sequences(), labels=AXES, epochs=1000.0, max_steps=150, learner=Learning(optimizer=AdamW(lr=2e-3))
    )
    new: dict[str, Stage] = {"heads": heads}
    for i in range(ROUNDS):
        new[f"round_{i + 1}"] = replace(
            stage,
            tasks=Directed(tasks=recipe.tasks, seed=i),
            selection=own,
            epochs=4.0,
            max_steps=None,
            learner=replace(stage.learner, optimizer=AdamW(lr=1e-3)),
        )
    model = Model(source="role:policy", head="reward", trained=True, outputs=len(AXES))
    recipe = with_models(replace(recipe, name="dpa"), {"reward": model})
    return with_stages_after(recipe, new, stage)
