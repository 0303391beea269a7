"""The context of a run on this machine: device, tasks, models, samplers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain import sandbox
from posttrain.cluster import Session
from posttrain.cluster.local import Here
from posttrain.component import nearest
from posttrain.datasets.together import lists
from posttrain.engines import Sampler, Server, wait_for
from posttrain.engines._random import key_of
from posttrain.errors import UserError
from posttrain.models import Model, copied_last, hub
from posttrain.models.sources import find_model
from posttrain.recipes.tree import Recipe
from posttrain.runs.changes import BASE, MODELS, REWARD_FILES, TASK_FILES, TASKS, digest_of_model
from posttrain.runs.checks import warnings_of
from posttrain.runs.estimate import Estimate, estimate
from posttrain.runs.fitting import CHOSEN, fit_to_models
from posttrain.runs.problems import Problems, note_of_special_tokens
from posttrain.stages import Models, Stage
from posttrain.stages.needs import check_needs, needs_of
from posttrain.stages.prompts import check_prompts

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy
    from posttrain.runs.store import RunStore
    from posttrain.serving.client import Remote


class RunContext:
    """A recipe with its device, tasks, models and samplers."""

    def __init__(self, recipe: Recipe, device: "torch.device") -> None:
        """Loads and splits the tasks and prepares the rewards; models are loaded on request."""
        self.fitted = fit_to_models(recipe)
        """What was chosen for the models, and warnings."""
        self.recipe, self.device = (recipe := self.fitted.recipe), device
        self.problems = Problems(recipe)
        for reward in self.problems.rewards:
            reward.prepare()
        self._servers: dict[int, Server] = {}
        self.session: Session = Here(recipe.engine, recipe.seed)
        """The processes that sample and learn; `processes` replaces it while a run goes on."""
        self.endpoints = connect(recipe)

    def first_models(self) -> "dict[str, Policy]":
        """The initial models of the recipe, without those that stages copy or merge."""
        here = {role: m for role, m in self.recipe.models.items() if not m.is_remote}
        later = {role for role, m in here.items() if m.source.startswith("role:") or m.source == "made"}
        plain = {role: m for role, m in here.items() if role not in later}
        if "policy" in self.endpoints:
            raise UserError("models.policy.source is an endpoint, which gives no tokens to learn from; name a folder")
        if "policy" not in plain:
            raise UserError("the recipe has no model in the role 'policy'; name one with models.policy.source=FOLDER")
        if self.device.type == "cpu":
            self.estimate().check()
        return {role: self.load(role, model, {}) for role, model in plain.items()}

    def estimate(self) -> Estimate:
        """The memory that the run takes at its peak, from the headers of its models."""
        tasks = {name: self.problems.of(stage) for name, stage in self.recipe.stages.items()}
        return estimate(self.recipe, len(self.problems.held_out), tasks)

    def load(self, role: str, model: Model, models: Models) -> "Policy":
        """The model of a role, with special tokens in data read as the tasks allow; `models` can be copied."""
        from posttrain.policies.loading import load_policy
        from posttrain.policies.tokenizer import Tokenizer

        policy = load_policy(role, model, models, self.device)
        tokenizer = getattr(policy, "tokenizer", None)
        if self.problems.allows_special_tokens and isinstance(tokenizer, Tokenizer):
            policy.tokenizer = tokenizer.allowing_special_tokens()
        return policy

    def check(self, models: Models) -> None:
        """Raise `UserError` for mistakes that the run would fail on later."""
        roles = self.recipe.models
        self._note_special_tokens(models["policy"])
        self._check_evaluation(models)
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
        schedule = self.recipe.schedule
        following = [stage for stage in self.recipe.stages.values() if stage.samples_ahead]
        if (schedule.ahead or schedule.streams is not None) and not following:
            raise UserError(
                f"schedule={self.recipe.schedule.kind}: no stage of this recipe samples ahead; leave it out. It is for "
                "stages of kind rl"
            )
        for stage in following:
            stage.check_timetable(schedule)
        for name, stage in self.recipe.stages.items():
            tasks = self.problems.of(stage)
            if not tasks:
                raise UserError(
                    f"stage {name}: no task is left to train on, since all are among the {len(self.problems.held_out)} "
                    "held-out ones; give other tasks, or another test set as evaluation.tasks"
                )
            self._check_roles(stage)
            with self.problems.naming_places():
                stage.check(models, tasks)
                for other, more in self.problems.further(stage).items():
                    if not more:
                        raise UserError(
                            f"stages.{name}.{other}.tasks: all of them are among the "
                            f"{len(self.problems.held_out)} held-out ones, so that none is left to learn from; give "
                            "others, or another test set as evaluation.tasks"
                        )
                    stage.check_further(other, models, more)
        self.problems.warnings = warnings_of(self.recipe, self.problems, models)
        for endpoint in self.endpoints.values():
            wait_for(endpoint.check())
        if self.recipe.push is not None:
            hub.check_push(self.recipe.push)

    def _check_evaluation(self, models: Models) -> None:
        """Raise `UserError` for held-out tasks that cannot be measured."""
        problems = self.problems
        problems.check_measures()
        with problems.naming_places():
            for stage in problems.losses:
                for task in problems.held_out:
                    stage.given(models["policy"], task)
            if not problems.answered:
                return
            check_prompts(models["policy"], problems.held_out, "the held-out tasks", problems.rollout)
            problems.verifier.check(problems.held_out)
            if problems.verifier.together is not None:
                lists(problems.held_out, problems.verifier.together, f"the verifier '{problems.verifier.kind}'")
        if problems.verifier.roles:
            raise UserError(
                f"the held-out answers would be scored by {problems.verifier.kind}, which needs the role "
                f"'{min(problems.verifier.roles)}'; models score in training only, so give a verifier of "
                "another kind: evaluation.verifier=match, or a function"
            )

    def _note_special_tokens(self, policy: "Policy") -> None:
        """Add a note on the number of tasks with texts of the policy's special tokens."""
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
        """Raise `UserError` for a model that is needed before a stage makes it, or that a stage makes in vain."""
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
        """Entries about this process for the record, in addition to `describe_environment`."""
        import torch

        from posttrain import kernels
        from posttrain.kernels import paged

        reward_files = {name: digest for reward in self.problems.rewards for name, digest in reward.fingerprint.items()}
        return {
            "threads": torch.get_num_threads(),
            "device": str(self.device),
            "kernels": kernels.status(),
            **({"gpu_kernels": paged.status(self.device)} if self.device.type == "cuda" else {}),
            REWARD_FILES: reward_files,
            TASK_FILES: self.problems.files,
            TASKS: self.problems.digests,
            MODELS: {name: digest_of_model(folder) for name, folder in self.model_folders().items()},
            **({CHOSEN: list(self.fitted.chosen)} if self.fitted.chosen else {}),
            **sandbox.environment(),
        }

    def model_folders(self) -> dict[str, Path]:
        """Folders of the models that are read from the user's files, by role; for an adapter also that of its base, and
        for a COMET model that of an encoder elsewhere.
        """
        from posttrain.policies.comet import encoder_folder, is_comet
        from posttrain.policies.folder import bundled_names
        from posttrain.policies.lora import base_of, is_adapter

        elsewhere = {"new", "made", *bundled_names()}
        own = {role: model.source for role, model in self.recipe.models.items() if not model.is_remote}
        folders = {
            role: find_model(source, role)
            for role, source in own.items()
            if source not in elsewhere and not source.startswith("role:")
        }
        models = self.recipe.models
        bases = {f"{role}{BASE}": base_of(path, models[role]) for role, path in folders.items() if is_adapter(path)}
        bases |= {
            f"{role}{BASE}": encoder_folder(path, models[role])
            for role, path in folders.items()
            if is_comet(path) and models[role].base is not None
        }
        return folders | bases

    def with_copies(self, stage: Stage, models: Models, keep: frozenset[str] = frozenset()) -> "dict[str, Policy]":
        """The models with copies for the ``role:`` roles that a stage needs, as the others are now.

        A frozen copy is taken anew by every stage, unless it is in `keep`; a trained one is made once.
        """
        self._check_roles(stage)
        made = dict(models)
        for role in sorted(stage.roles, key=lambda role: (copied_last(role, self.recipe.models), role)):
            model = self.recipe.models[role]
            kept = role in made and (model.trained or role in keep)
            if model.source.startswith("role:") and not kept:
                made[role] = self.load(role, model, made)
        alive = {id(policy) for policy in made.values()}
        self._servers = {key: server for key, server in self._servers.items() if key in alive}
        self.session.keep(list(made.values()))
        return made

    @contextmanager
    def processes(self) -> Iterator[None]:
        """Inside, the processes of the recipe's cluster sample and learn."""
        with self.recipe.cluster.open(self.recipe.engine, self.recipe.seed) as session:
            before, self.session, self._servers = self.session, session, {}
            try:
                yield
            finally:
                self.session, self._servers = before, {}

    def each_note(self, show: Callable[[str], None]) -> None:
        """Show what processes and endpoints have to say since the last call."""
        for note in (*self.session.take_notes(), *(n for own in self.endpoints.values() for n in own.take_notes())):
            show(note)

    def server(self, policy: "Policy") -> Server:
        """The server of a policy."""
        if id(policy) not in self._servers:
            self._servers[id(policy)] = self.session.serve(policy)
        return self._servers[id(policy)]

    def remote_samplers(self, *key: int | str) -> dict[str, Sampler]:
        """Samplers of the endpoints, by role; their requests are a function of (recipe seed, key)."""
        if not self.endpoints:
            return {}
        from posttrain.serving.sampler import RemoteSampler

        return {role: RemoteSampler(remote, *key) for role, remote in self.endpoints.items()}

    def keep_answers(self, folder: Path) -> None:
        """Record answers of endpoints in a run's folder, and reuse those that are there."""
        from posttrain.runs.answers import AnswerBook, SharedAnswers
        from posttrain.runs.verdict_store import shared_store

        if self.endpoints:
            book = AnswerBook(folder)
            for remote in self.endpoints.values():
                kept = shared_store(remote)
                remote.answers = book if kept is None else SharedAnswers(book, kept)


class StageRunContext:
    """The context of one stage."""

    def __init__(self, context: RunContext, name: str, stage: Stage, draw: int = 0) -> None:
        """`name` is the stage's name in the recipe; draws depend on it and on `draw`, the number of roll-backs."""
        self._context = context
        self.name, self.recipe = name, context.recipe
        self._key: tuple[int | str, ...] = (name, "draw", draw) if draw else (name,)
        self.seed = key_of(context.recipe.seed, *self._key)
        self.tasks = context.problems.of(stage)
        self.further = context.problems.further(stage)
        self.held_out = context.problems.held_out
        self.model_settings = context.recipe.models
        self.errors: list[str] = []
        self.store: Callable[[], None] = lambda: None
        """Called before a checkpoint is written."""

    @property
    def overlaps(self) -> bool:
        """Whether several of the steps that are sampled ahead are sampled at a time."""
        return self.recipe.schedule.overlaps

    def before_saving(self, store: Callable[[], None]) -> None:
        """Call this before a checkpoint is written."""
        self.store = store

    def samplers(self, models: Models, *key: int | str) -> dict[str, Sampler]:
        """A sampler for every model; the draws are a function of (recipe seed, stage, key)."""
        return {
            **{role: self._context.server(p).bind(*self._key, *key) for role, p in models.items() if p.writes},
            **self._context.remote_samplers(*self._key, *key),
        }

    def sampled_tokens(self, models: Models) -> int:
        """Tokens that the models have sampled so far, for all requests, also those that were dropped. Tokens of
        endpoints are not counted, since endpoints do not report them.
        """
        policies = {id(policy): policy for policy in models.values() if policy.writes}.values()
        return sum(self._context.server(policy).counters.sampled_tokens for policy in policies)


def connect(recipe: Recipe) -> "dict[str, Remote]":
    """The endpoints by role. Raises `UserError` if the environment lacks a key."""
    remote = {role: model for role, model in recipe.models.items() if model.is_remote}
    if not remote:
        return {}
    from posttrain.models import Endpoint
    from posttrain.serving.client import Remote

    return {
        role: Remote(role, model.source, model.endpoint or Endpoint(), seed=key_of(recipe.seed, role))
        for role, model in remote.items()
    }


def opening_events(context: RunContext, store: "RunStore") -> list[tuple[str, str]]:
    """Kinds and messages of what is recorded before the first step.

    What was chosen for the models is in the environment of the run, since its recipe holds the numbers alone.
    """
    chosen = [("note", message) for message in store.environment().get(CHOSEN, ())]
    warnings = [*context.fitted.warnings, *context.problems.warnings]
    return [*chosen, *(("warning", text) for text in warnings), *(("note", text) for text in context.problems.notes)]
