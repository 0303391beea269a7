"""VPL: a reward model that infers what each user likes from a few of the user's pairs, then GRPO by its score.

Source: VPL, arXiv:2408.10075, of which the releases were read (WEIRDLabUW/vpl_llm at fdfdfa7, WEIRDLabUW/vpl at
531bb97). Eight pairs of a user are encoded into a Gaussian of a latent z (`posttrain.policies.latent`), and the reward
of a text depends on z (`stages/personal_model`): the likelihood of Bradley and Terry, and a small KL whose weight rises
in cycles. At inference z is the mean; a new user needs a few pairs and no training (`rewards/personal_model`).

    posttrain run vpl tasks.tasks=mine.jsonl    # columns: prompt, user, chosen, rejected, completion (to
    # imitate); request is what the reward model reads in place of a prompt that names the user

``rl.reward.bounded=true`` rewards the mean probability to be preferred, so that no user's scale decides.
``personal_model.kl=doubled`` has the KL of the release for control.

Differs: the language model is frozen; the states of its texts are centered. The
weight of the KL is that of pets, and its cycle is longer than the default run. Of the variant for control the bounded
score is here, with the texts of the user's own pairs to compare with; its encoder of a fixed number of annotations, its
learned priors and its offline policy given z are left out, and so are the copies of controversial pets. Queries that
are chosen by the variances of z are measured by the script alone (`query_value`).

Measured here (``python docs/experiments/latent_users.py --seeds 5``, points in two dimensions, types +u and -u): a
reward of Bradley and Terry has .497 [.472, .521] of new pairs in order, one with a latent .504, .873 [.855, .891],
.928, .949 and .956 [.946, .967] after 0, 1, 2, 4 and 8 pairs of a new user. Four queries of largest value give .936
[.908, .964], and drawn ones .951 [.940, .962]: no gain, since the variances are clamped. Of two users with margins of
ten to one, a policy by their mean raw score is liked more than .954 and .227 of the places, by bounded scores .847
[.726, .968] and .281 [.220, .342]: a little less unequal, and no service to both. The default run, one seed, whose
reward model does not read the name of the user: replies with only the word that the user likes are 37 % of 100 held-out
ones after the imitation, and 100 % [96, 100] at the end; without any pairs (``tasks.pairs=0``) they are 9 % [5, 16].
Without a KL to the imitating model the policy finds words that nobody writes, such as " rai", which the reward model
had not seen. A text without content outranks 9 of 16 demonstrations, which nobody chose: the setting's audit only
measures.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.personal_model import PersonalModel
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.tastes import tastes
from posttrain.stages.personal_model import PersonalModelTraining
from posttrain.stages.reward_model import RewardModelTraining

PARENT: Final = "grpo"
SETTING: Final = "tastes"
PAPER: Final = "arXiv:2408.10075"
ROWS: Final = (177,)


def vpl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO with a reward model: it infers what the user of each pair likes from other pairs of the user."""
    recipe = keep_verifier(grpo(recipe or tastes()))
    name, plain = next(((n, s) for n, s in recipe.stages.items() if isinstance(s, RewardModelTraining)), ("", None))
    if plain is None:
        raise UserError(
            f"recipe '{recipe.name}' has no stage reward_model, which learns from pairs of users; add one, or start "
            "from the setting tastes"
        )
    personal = PersonalModelTraining(
        reducer=plain.reducer,
        role=plain.role,
        batch=plain.batch,
        epochs=plain.epochs,
        max_steps=plain.max_steps,
        learner=plain.learner,
        tasks=plain.tasks,
    )
    model = replace(recipe.models[plain.role], latent=recipe.models[plain.role].latent or 8)
    recipe = replace(recipe, name="vpl", models={**recipe.models, plain.role: model})
    stages = {"personal_model" if n == name else n: personal if n == name else s for n, s in recipe.stages.items()}
    return with_stage(replace(recipe, stages=stages), replace(rl_of(recipe), reward=PersonalModel(role=plain.role)))
