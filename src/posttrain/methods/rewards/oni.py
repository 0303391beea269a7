r"""ONI: a judge labels the captions of what happens, beside the training, and labelled captions are rewarded.

Source: Zheng et al. 2024, arXiv:2410.23022, and its release (facebookresearch/oni at f0f86e8). A turn is rewarded by
the label of its caption over the third power of its occurrences in the episode, 0.4 of that beside 10 times the
environment's reward (`rewards/captions`). Labels are requested of new captions, the newest first, and arrive later;
training does not wait. A table of labels, a classifier of captions, or a ranking of them make the reward.

    posttrain run oni
    posttrain run oni reward.model=ranking reward.delay=20
    posttrain run oni setting=FILE.py:FUNCTION 'reward={kind: captions, of: verdict, goal: find the exit}' \
        models.judge.source=http://HOST/v1
    # a setting with an environment whose observations have a caption in their first line

In the default setting a rule with 10 % wrong labels stands for the judge, and a new model of 200k weights explores
rooms 2 wide in 20 turns. Of 20 held-out episodes none ends at the exit after imitation of random walks; 100, 95, 0, 100
and 100 % do after 120 steps (five seeds, of which one never finds the exit; 95 % intervals [83.9, 100], [76.4, 99.1]
and [0, 16.1]).

Measured here over five seeds by tables that explore rooms 4 wide in 24 turns (`docs/experiments/captions.py`, 200 steps
of 16 episodes): with the environment's reward alone no episode ends at the exit; with a table of labels 0.93 [0.90,
0.96] of the last do, with a classifier 0.92 [0.87, 0.97], with a ranking, which is the fastest, 0.97 [0.95, 1.00].
Without the count (`reward.exponent=0`) none does: one caption is repeated 10 [2.8, 17] times in an episode, 1.4 [0.6,
2.3] times with the third power; with the first power 0.56 [-0.08, 1.20] do. Labels that are 20 steps late stop nobody
(0.94 [0.90, 0.98]); half are there after 112 [70, 153] steps in place of 74 [34, 115]. 46 captions need 46 labels, and
920 where captions are requested again until a label arrives, as in the release.

Differs: labels are requested between steps, not by a process beside them, so that a run resumes bit for bit: what step
k requests is there in step k + `delay`. Classifier and ranking are linear in the counts of a caption's pieces. GAE with
PPO's clip stands for APPO with V-trace, and rewards are computed once, with the labels that are there when a batch is
scored.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.captioned import HELPFUL, Captioned
from posttrain.components.rewards.captions import Captions
from posttrain.methods.policy_gradient.ppo import as_ppo
from posttrain.models import Model
from posttrain.recipes.changes import keep_verifier, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.captioned_rooms import captioned_rooms

PARENT: Final = "ppo"
SETTING: Final = "captioned_rooms"
PAPER: Final = "arXiv:2410.23022"
ROWS: Final = (208,)


def oni(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: rewards for captions that a judge has called helpful."""
    recipe = as_ppo(keep_verifier(recipe or captioned_rooms()))
    stage = rl_of(recipe)
    if not isinstance(stage.reward, Captions):
        ruled = isinstance(getattr(stage.rollout, "environment", None), Captioned)
        reward = Captions(of=stage.reward, helpful=HELPFUL if ruled else (), noise=0.1 if ruled else 0.0)
        stage = replace(stage, reward=reward)
        if not ruled:
            recipe = with_models(recipe, {"judge": recipe.models.get("judge", Model(source="role:policy"))})
    return with_stage(replace(recipe, name="oni"), stage)
