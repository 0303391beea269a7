"""What a recipe works with before anything is trained or recorded: device, tasks, models, samplers."""

from typing import TYPE_CHECKING, Any

from posttrain.engines import Sampler, Server
from posttrain.engines._random import key_of
from posttrain.errors import UserError
from posttrain.recipe import Recipe
from posttrain.runs.problems import Problems
from posttrain.stages import Models, Stage

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy


class Bench:
    """A recipe made ready on this machine."""

    def __init__(self, recipe: Recipe, device: "torch.device") -> None:
        """Loads and splits the tasks and readies the rewards; models are loaded when they are asked for."""
        self.recipe, self.device = recipe, device
        self.problems = Problems(recipe)
        for reward in self.problems.rewards:
            reward.prepare()
        self._servers: dict[int, Server] = {}

    def first_models(self) -> "dict[str, Policy]":
        """The recipe's models as they begin; copies of other roles wait for the stage that needs them."""
        from posttrain.policies import load_policy

        plain = {role: m for role, m in self.recipe.models.items() if not m.source.startswith("role:")}
        models = {role: load_policy(role, model, {}, self.device) for role, model in plain.items()}
        self._check_prompts(models["policy"])
        return models

    def _check_prompts(self, policy: "Policy") -> None:
        """Raise `UserError` for prompts that leave no room for an answer, before anything is sampled."""
        context, too_long = policy.body.context, []
        for task in self.problems.everything:
            length = len(policy.tokenizer.encode_prompt(task.prompt))
            if length >= context:
                too_long.append((task.key, length))
        if too_long:
            key, length = too_long[0]
            raise UserError(
                f"{len(too_long)} prompts do not fit into the context of {context} tokens of model "
                f"'{self.recipe.models['policy'].source}' with room for an answer; the first is task {key} with "
                f"{length} tokens. Shorten or leave out those rows, or use a model with a longer context"
            )

    def environment(self) -> dict[str, Any]:
        """What the record should know of this process, beside what can be found out later."""
        import torch

        judges = {name: digest for reward in self.problems.rewards for name, digest in reward.fingerprint.items()}
        return {"threads": torch.get_num_threads(), "device": str(self.device), "reward_files_sha256": judges}

    def with_copies(self, stage: Stage, models: Models, keep: frozenset[str] = frozenset()) -> "dict[str, Policy]":
        """The models with copies for the ``role:`` roles that a stage needs, as the others are now.

        A frozen copy is taken anew by every stage, unless it is in `keep`; a trained one is made once.
        """
        from posttrain.policies import load_policy

        made = dict(models)
        for role in sorted(stage.roles):
            if role not in self.recipe.models:
                raise UserError(
                    f"the {stage.kind} stage needs a model in the role '{role}'; write models.{role}.source=role:policy"
                    " for a copy of the policy as the stage finds it, or name a model"
                )
            model = self.recipe.models[role]
            kept = role in made and (model.trained or role in keep)
            if model.source.startswith("role:") and not kept:
                made[role] = load_policy(role, model, made, self.device)
        return made

    def server(self, policy: "Policy") -> Server:
        """The policy, ready to sample."""
        if id(policy) not in self._servers:
            self._servers[id(policy)] = self.recipe.engine.serve(policy, self.recipe.seed)
        return self._servers[id(policy)]


class StageBench:
    """What one stage works with."""

    def __init__(self, bench: Bench, name: str, stage: Stage) -> None:
        """`name` is the stage's name in the recipe; its draws depend on it."""
        self._bench = bench
        self.name, self.recipe = name, bench.recipe
        self.seed = key_of(bench.recipe.seed, name)
        self.tasks = bench.problems.of(stage)

    def samplers(self, models: Models, *key: int | str) -> dict[str, Sampler]:
        """Every model ready to sample; the draws are a function of (recipe seed, stage, key)."""
        return {role: self._bench.server(policy).bind(self.name, *key) for role, policy in models.items()}
