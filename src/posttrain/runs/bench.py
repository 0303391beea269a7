"""A recipe made ready on this machine: device, tasks, models, samplers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain import sandbox
from posttrain.component import nearest
from posttrain.engines import Sampler, Server, wait_for
from posttrain.engines._random import key_of
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.recipes.tree import Recipe
from posttrain.runs.changes import BASE, MODELS, REWARD_FILES, TASK_FILES, TASKS, digest_of_model
from posttrain.runs.problems import Problems, note_of_special_tokens
from posttrain.stages import Models, Stage
from posttrain.stages.needs import check_needs, needs_of
from posttrain.stages.prompts import check_prompts

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy
    from posttrain.serving.client import Remote


class Bench:
    """A recipe made ready on this machine."""

    def __init__(self, recipe: Recipe, device: "torch.device") -> None:
        """Loads and splits the tasks and readies the rewards; models are loaded when they are asked for."""
        self.recipe, self.device = recipe, device
        self.problems = Problems(recipe)
        for reward in self.problems.rewards:
            reward.prepare()
        self._servers: dict[int, Server] = {}
        self.endpoints = connect(recipe)

    def first_models(self) -> "dict[str, Policy]":
        """The recipe's models as they begin; those that are copied or made wait for the stage that does it."""
        here = {role: m for role, m in self.recipe.models.items() if not m.is_remote}
        later = {role for role, m in here.items() if m.source.startswith("role:") or m.source == "made"}
        plain = {role: m for role, m in here.items() if role not in later}
        if "policy" in self.endpoints:
            raise UserError("models.policy.source is an endpoint, which gives no tokens to learn from; name a folder")
        if "policy" not in plain:
            raise UserError("the recipe has no model in the role 'policy'; name one with models.policy.source=FOLDER")
        return {role: self.load(role, model, {}) for role, model in plain.items()}

    def load(self, role: str, model: Model, models: Models) -> "Policy":
        """The model of a role, which reads special tokens in data as the tasks say; `models` are there to be copied."""
        from posttrain.policies.loading import load_policy
        from posttrain.policies.tokenizer import Tokenizer

        policy = load_policy(role, model, models, self.device)
        tokenizer = getattr(policy, "tokenizer", None)
        if self.problems.allows_special_tokens and isinstance(tokenizer, Tokenizer):
            policy.tokenizer = tokenizer.allowing_special_tokens()
        return policy

    def check(self, models: Models) -> None:
        """Raise `UserError` for anything that the run would stumble over later, before it is begun."""
        roles = self.recipe.models
        self._note_special_tokens(models["policy"])
        check_prompts(models["policy"], self.problems.held_out, "the held-out tasks")
        if not any(model.trained for model in roles.values()):
            raise UserError("no model of this recipe is trained; set models.policy.trained=true")
        for role, model in roles.items():
            name = model.source.removeprefix("role:")
            if name != model.source and name not in roles:
                raise UserError(f"models.{role}.source: there is no role '{name}' to copy; {nearest(name, roles)}")
        for name, stage in self.recipe.stages.items():
            check_needs(f"stages.{name}", stage.needed(roles), roles, models)
        if self.recipe.evaluation.search is not None:
            check_needs("evaluation", needs_of("search", self.recipe.evaluation.search, role="policy"), roles, models)
        self._check_made()
        for name, stage in self.recipe.stages.items():
            tasks = self.problems.of(stage)
            if not tasks:
                raise UserError(
                    f"stage {name}: no task is left to train on, since all are among the {len(self.problems.held_out)} "
                    "held-out ones; give other tasks, or another test set as evaluation.tasks"
                )
            self._check_roles(stage)
            stage.check(models, tasks)
        if self.problems.verifier.roles:
            raise UserError(
                f"the held-out answers would be judged by {self.problems.verifier.kind}, which asks the role "
                f"'{min(self.problems.verifier.roles)}'; models judge in training only so far, so give a verifier of "
                "another kind: evaluation.verifier=match, or a function"
            )
        for endpoint in self.endpoints.values():
            wait_for(endpoint.check())

    def _note_special_tokens(self, policy: "Policy") -> None:
        """Say how many tasks hold texts of the policy's special tokens, which are easily meant to mislead."""
        from posttrain.policies.tokenizer import Tokenizer

        problems, tokenizer = self.problems, getattr(policy, "tokenizer", None)
        if isinstance(tokenizer, Tokenizer):
            tasks, special = [*problems.train, *problems.held_out], tokenizer.special_tokens
            note = note_of_special_tokens(tasks, special, problems.allows_special_tokens)
            problems.notes += [note] if note else []

    def _check_roles(self, stage: Stage) -> None:
        """Raise `UserError` for a role that a stage needs and the recipe does not have."""
        for role in sorted(stage.roles - self.recipe.models.keys()):
            raise UserError(
                f"the {stage.kind} stage needs a model in the role '{role}'; write models.{role}.source=role:policy "
                "for a copy of the policy as the stage finds it, or name a model"
            )

    def _check_made(self) -> None:
        """Raise `UserError` for a model that is needed before a stage has made it, or made only to be copied over."""
        waiting = {role for role, model in self.recipe.models.items() if model.source == "made"}
        for name, stage in self.recipe.stages.items():
            for role in sorted(stage.roles & waiting):
                raise UserError(
                    f"models.{role}.source is 'made', but no stage before {name}, which needs it, makes that model; "
                    f"put one there (stages.NAME.kind=merge with role={role}), or name a model"
                )
            for role in sorted(stage.makes):
                model = self.recipe.models.get(role)
                if model is None or not (model.trained or model.source == "made"):
                    source = "there is none in the recipe" if model is None else f"its source is '{model.source}'"
                    raise UserError(
                        f"stage {name} makes the model of the role '{role}', but {source}; "
                        f"write models.{role}.source=made"
                    )
            waiting -= stage.makes

    def environment(self) -> dict[str, Any]:
        """What the record should know of this process, beside what can be found out later."""
        import torch

        from posttrain import kernels
        from posttrain.kernels import paged

        judges = {name: digest for reward in self.problems.rewards for name, digest in reward.fingerprint.items()}
        return {
            "threads": torch.get_num_threads(),
            "device": str(self.device),
            "kernels": kernels.status(),
            **({"gpu_kernels": paged.status(self.device)} if self.device.type == "cuda" else {}),
            REWARD_FILES: judges,
            TASK_FILES: self.problems.files,
            TASKS: self.problems.digests,
            MODELS: {name: digest_of_model(folder) for name, folder in self.model_folders().items()},
            **sandbox.environment(),
        }

    def model_folders(self) -> dict[str, Path]:
        """Where the models that are read from folders of the user's lie, by role; of an adapter also its base's."""
        from posttrain.policies.folder import bundled_names
        from posttrain.policies.lora import base_of, is_adapter

        elsewhere = {"new", "made", *bundled_names()}
        own = {role: model.source for role, model in self.recipe.models.items() if not model.is_remote}
        folders = {
            role: Path(source).expanduser()
            for role, source in own.items()
            if source not in elsewhere and not source.startswith("role:")
        }
        bases = {f"{role}{BASE}": base_of(folder) for role, folder in folders.items() if is_adapter(folder)}
        return folders | bases

    def with_copies(self, stage: Stage, models: Models, keep: frozenset[str] = frozenset()) -> "dict[str, Policy]":
        """The models with copies for the ``role:`` roles that a stage needs, as the others are now.

        A frozen copy is taken anew by every stage, unless it is in `keep`; a trained one is made once.
        """
        self._check_roles(stage)
        made = dict(models)
        for role in sorted(stage.roles):
            model = self.recipe.models[role]
            kept = role in made and (model.trained or role in keep)
            if model.source.startswith("role:") and not kept:
                made[role] = self.load(role, model, made)
        alive = {id(policy) for policy in made.values()}
        self._servers = {key: server for key, server in self._servers.items() if key in alive}
        return made

    def server(self, policy: "Policy") -> Server:
        """The policy, ready to sample."""
        if id(policy) not in self._servers:
            self._servers[id(policy)] = self.recipe.engine.serve(policy, self.recipe.seed)
        return self._servers[id(policy)]

    def remote_samplers(self, *key: int | str) -> dict[str, Sampler]:
        """The roles that endpoints play, ready to write; what they are asked is a function of (recipe seed, key)."""
        if not self.endpoints:
            return {}
        from posttrain.serving.sampler import RemoteSampler

        return {role: RemoteSampler(remote, *key) for role, remote in self.endpoints.items()}

    def keep_answers(self, folder: Path) -> None:
        """Keep what endpoints answer in a run's folder, and give again what is there."""
        from posttrain.runs.answers import AnswerBook

        if self.endpoints:
            book = AnswerBook(folder)
            for remote in self.endpoints.values():
                remote.answers = book


class StageBench:
    """What one stage works with."""

    def __init__(self, bench: Bench, name: str, stage: Stage, draw: int = 0) -> None:
        """`name` is the stage's name in the recipe; its draws depend on it, and on the number of the draw."""
        self._bench = bench
        self.name, self.recipe = name, bench.recipe
        self._key: tuple[int | str, ...] = (name, "draw", draw) if draw else (name,)
        self.seed = key_of(bench.recipe.seed, *self._key)
        self.tasks = bench.problems.of(stage)
        self.model_settings = bench.recipe.models

    def samplers(self, models: Models, *key: int | str) -> dict[str, Sampler]:
        """Every model ready to sample; the draws are a function of (recipe seed, stage, key)."""
        return {
            **{role: self._bench.server(policy).bind(*self._key, *key) for role, policy in models.items()},
            **self._bench.remote_samplers(*self._key, *key),
        }

    def sampled_tokens(self, models: Models) -> int:
        """Tokens that the models have sampled until now, whoever asked and whatever became of them. What endpoints
        write is not among them: they do not say their tokens.
        """
        servers = [self._bench.server(policy) for policy in {id(policy): policy for policy in models.values()}.values()]
        return sum(server.counters.sampled_tokens for server in servers)


def connect(recipe: Recipe) -> "dict[str, Remote]":
    """The endpoints that play roles. Raises `UserError` where the environment lacks a key."""
    remote = {role: model for role, model in recipe.models.items() if model.is_remote}
    if not remote:
        return {}
    from posttrain.models import Endpoint
    from posttrain.serving.client import Remote

    return {
        role: Remote(role, model.source, model.endpoint or Endpoint(), seed=key_of(recipe.seed, role))
        for role, model in remote.items()
    }
