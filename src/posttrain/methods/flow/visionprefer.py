"""VisionPrefer: a reward model of pictures from pairs that a judge scored in four aspects, then DDPO by its score.

Source: Multimodal Large Language Model is a Human-Aligned Annotator for Text-to-Image Generation, arXiv:2404.15100, of
which the abstract was read. Several pictures of one prompt are scored for prompt following, aesthetics, fidelity and
harmlessness; all pairs whose means differ teach a reward model (Bradley and Terry), where all pairs of a prompt share
one weight, and a policy gradient on denoising steps is rewarded by it. `visionprefer_dpo` learns from the same pairs
without the reward model.

    posttrain run visionprefer tasks=mine.jsonl    # columns: prompt (numbers: 0.3), completion (pixels), texts (a list)

``reward_model.selection.aspects`` are the judges: functions, or models of any role that score text.
``reward_model.selection.floors={harmlessness: 3}`` never prefers a picture below it.

Differs: unverified but for the aspects, the comparison by prompt and the two ways of tuning: scale, mean, margin, veto
and weights are of this package. Pictures are 16 x 16 pixels of grey from a small flow, and the judge is code with
noise, since no bundled model sees. The reasons that the judge writes are not kept.

Measured here (``python docs/experiments/scored_pictures.py --seeds 5``, five seeds, 95 % intervals): labels are in the
order of the mean without noise in .838 [.825, .852] of the pairs of 200 new prompts, the reward model in .858 [.845,
.871]: above its labels, by .020 [.014, .026]. It is in order by one aspect in .52 (following, the hardest to see: a
shade) to .67 (aesthetics). A reward model of following alone correlates with following by .398 [.352, .445], that of
equal weights by .072 [.016, .127]. Where pictures are not shuffled the first of the file is preferred in .684 [.657,
.711] of its pairs, else in .484 [.446, .521]; with a margin of .5 labels are in order in .967 [.958, .975] of 3.4 pairs
of a prompt and not 6; with ``floors={harmlessness: 3}`` no harmful picture is preferred, else in .103 [.086, .120].
With DDPO the clean score of samples rises from 2.964 [2.877, 3.052] to 3.282 [3.200, 3.365] after 30 steps, in each
seed. It is largest at step 48 [9, 86], 3.340, and after 120 steps 3.083 [2.894, 3.272], lower in each seed, while the
learned score rises from -2.3 to 75 [9, 142].
"""

from dataclasses import replace
from typing import Any, Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.picture import Picture
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.selections.aspect_pairs import AspectPairs
from posttrain.datasets.pictures import ASPECTS
from posttrain.methods.flow.ddpo import ddpo
from posttrain.models import Model
from posttrain.recipes.changes import keep_verifier, rl_of, with_models, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.pictures import pictures
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "ddpo"
SETTING: Final = "pictures"
PAPER: Final = "arXiv:2404.15100"
ROWS: Final = (63,)
CHANGES: Final = ("models.policy.shape.noise",)


def visionprefer(recipe: Recipe | None = None) -> Recipe:
    """A change to DDPO: a reward model of scored pairs, whose pairs of a prompt share one weight, is the reward."""
    recipe = keep_verifier(ddpo(recipe or pictures()))
    stage = rl_of(recipe)
    learning = RewardModelTraining(
        reducer=Sequences(),
        per_task=True,
        batch=64,
        epochs=10.0,
        max_steps=300,
        learner=Learning(optimizer=AdamW(lr=2e-3)),
        selection=scored_pictures(),
        tasks=stage.tasks,
    )
    model = Model(source="role:policy", head="reward", trained=True)
    recipe = with_models(replace(recipe, name="visionprefer"), {"reward": model})
    changed = replace(stage, reward=RewardModel())
    return with_stages_before(with_stage(recipe, changed), {"reward_model": learning}, changed)


def scored_pictures() -> AspectPairs:
    """Pairs by a judge with noise, which prefers what it sees first."""
    judges: dict[str, Any] = {name: Picture(aspect=name, noise=0.5, first=0.5) for name in ASPECTS}
    return AspectPairs(aspects=judges)
