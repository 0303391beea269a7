"""The content of a checkpoint, and how a run is restored from it exactly.

    checkpoints/step_000050/
        state.json                   step, stage, memory of every part, learner counters, sizes of the record's files;
                                     of a reward that keeps much only a digest: the rest is in memory.jsonl
        models/<role>/               an ordinary Hugging Face folder: usable as it is. With adapters it is that of the
                                     adapters alone, which names their base
        weights-<role>.safetensors   only where that folder is not exact (adapters' types, heads)
        learner-<role>.safetensors   optimizer state

Numbers are JSON and tensors are safetensors: reading a checkpoint never runs code.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from pydantic import Field, Json, NonNegativeInt, TypeAdapter
from typing_extensions import TypedDict

from posttrain.errors import UserError
from posttrain.errors.foreign import guard, parse_json
from posttrain.models import Model, copied_last
from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs import checkpoints
from posttrain.runs.changes import recipe_changes
from posttrain.runs.context import RunContext
from posttrain.runs.environment import RECIPE
from posttrain.runs.extension import is_extended
from posttrain.runs.files import write_file
from posttrain.runs.memories import memories_of
from posttrain.runs.reading import JOURNAL, read_own
from posttrain.runs.store import MEMORY, RunStore
from posttrain.stages.memory import pack, unpack

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.policies import Policy

REWARD = "reward"
"""The part of a stage's memory that is kept by its changes, where it is large (`posttrain.runs.memories`)."""
ROLLED_BACK = "rolled back"
"""Kind of the history entry of a roll-back by an alarm."""


class _State(TypedDict):
    """What state.json has at least, and what it has had since the recipe is kept there."""

    step: NonNegativeInt
    stage: NonNegativeInt
    steps_done: NonNegativeInt
    roll_backs: NonNegativeInt
    healthy: bool
    threads: Annotated[int, Field(ge=1, le=4096)]
    roles: list[str]
    versions: dict[str, int]
    learners: dict[str, dict[str, Any]]
    memory: dict[str, Any]
    position: dict[str, NonNegativeInt]
    recipe: NotRequired[Json[dict[str, Any]] | None]


_STATE = TypeAdapter(_State)
LearnerState = tuple[Mapping[str, object], Mapping[str, "Tensor"]]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of a run between two steps."""

    models: "Mapping[str, Policy]" = field(default_factory=dict)
    step: int = 0
    """Steps of the whole run that are done."""
    stage: int = 0
    """Index of the stage to continue with."""
    steps_done: int = 0
    """Steps of that stage that are done."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    learners: "Mapping[str, LearnerState]" = field(default_factory=dict)
    position: Mapping[str, int] = field(default_factory=dict)
    """Sizes that the record's files are truncated to; an empty mapping empties them."""
    roll_backs: int = 0
    """Number of roll-backs by alarms."""
    resumed: bool = False

    @classmethod
    def empty(cls) -> "Snapshot":
        """A snapshot without any state."""
        return cls()


def save_snapshot(
    store: RunStore,
    recipe: Recipe,
    models: "Mapping[str, Policy]",
    *,
    step: int,
    stage: int,
    steps_done: int = 0,
    memory: Mapping[str, Any] | None = None,
    learners: "Mapping[str, LearnerState] | None" = None,
    roll_backs: int = 0,
    healthy: bool = True,
) -> Path:
    """Write a checkpoint atomically, and delete older ones beyond `recipe.checkpoints.keep`.

    A `healthy` one is one that alarms may go back to: the newest of those stays in any case.
    """
    import torch
    from safetensors.torch import save_file

    own = {role: policy for role, policy in models.items() if _is_ours(recipe.models[role])}
    packed = pack(memory or {})
    if REWARD in packed:
        packed = {**packed, REWARD: memories_of(store).keep(step, packed[REWARD])}
    state = {
        "step": step,
        "stage": stage,
        "steps_done": steps_done,
        "memory": packed,
        "roll_backs": roll_backs,
        "healthy": healthy,
        "learners": {role: numbers for role, (numbers, _) in (learners or {}).items()},
        "versions": {role: policy.version for role, policy in models.items()},
        "roles": sorted(own),
        "position": store.position(),
        "threads": torch.get_num_threads(),
        RECIPE: json.dumps(to_tree(recipe)),  # as text: the order of stages counts, also for readers that sort keys
    }

    def write(folder: Path) -> None:
        for role, policy in own.items():
            if keeps_base(recipe.models[role]):
                policy.save_adapters(folder / "models" / role)
            else:
                policy.save(folder / "models" / role)
            if not _folder_is_exact(recipe.models[role]):
                save_file(_own_weights(policy, recipe.models[role]), folder / f"weights-{role}.safetensors")
        for role, (_, tensors) in (learners or {}).items():
            save_file(dict(tensors), folder / f"learner-{role}.safetensors")
        write_file(folder / "state.json", json.dumps(state, indent=1))

    return checkpoints.save(
        store.folder / "checkpoints", f"step_{step:06d}_{stage}", write, recipe.checkpoints.keep, _was_healthy
    )


def newest_snapshot(store: RunStore, context: RunContext) -> Snapshot | None:
    """The state of the newest good checkpoint; None if there is none.

    Once an alarm has made the run go back, of the checkpoints before that only those count that were saved while no
    alarm was raised. The end of a stage that goes on under a changed recipe does not count either.
    """
    from safetensors.torch import load_file

    folder = store.folder / "checkpoints"
    checkpoints.sweep(folder)
    roll_backs = _roll_backs(store)
    found = checkpoints.newest(
        folder,
        lambda bad, why: store.log_history("bad checkpoint", f"{bad.name} is damaged and was passed over: {why}"),
        lambda path: _counts(path, roll_backs) and not is_extended(_state(path), store, context),
    )
    if found is None:
        return None
    state = _state(found)
    _check_recipe(store, state.get(RECIPE), context.recipe)
    _check_threads(state["threads"])
    memory = state["memory"]
    if REWARD in memory:
        size = state["position"].get(MEMORY, 0)
        memory = {**memory, REWARD: memories_of(store).find(memory[REWARD], size)}
    models = _load(context, found, state["roles"])
    for role, version in state["versions"].items():
        models[role].version = version
    learners = {}
    for role, numbers in state["learners"].items():
        path = found / f"learner-{role}.safetensors"
        with guard(f"{path} cannot be read"):
            learners[role] = (numbers, load_file(path))
    return Snapshot(
        models=models,
        step=state["step"],
        stage=state["stage"],
        steps_done=state["steps_done"],
        memory=unpack(memory),
        learners=learners,
        position=state["position"],
        roll_backs=roll_backs,
        resumed=True,
    )


def newest_state(store: RunStore) -> dict[str, Any] | None:
    """The numbers of the newest good checkpoint; None if there is none."""
    roll_backs = _roll_backs(store)
    found = checkpoints.newest(
        store.folder / "checkpoints", lambda bad, why: None, lambda path: _counts(path, roll_backs)
    )
    return None if found is None else _state(found)


def _roll_backs(store: RunStore) -> int:
    """Number of roll-backs by alarms."""
    return sum(entry["kind"] == ROLLED_BACK for entry in store.history())


def _counts(checkpoint: Path, roll_backs: int) -> bool:
    """Whether a run that was rolled back so often may continue from a checkpoint."""
    return bool(_state(checkpoint)["roll_backs"] == roll_backs) or _was_healthy(checkpoint)


def _was_healthy(checkpoint: Path) -> bool:
    """Whether no alarm was raised when it was saved."""
    return bool(_state(checkpoint)["healthy"])


def _state(checkpoint: Path) -> dict[str, Any]:
    """The numbers of a checkpoint."""
    path = checkpoint / "state.json"
    with guard(f"{path} is not the state of a run"):
        state = parse_json(read_own(path, JOURNAL).decode(), constants=True)
        _STATE.validate_python(state, strict=True)
        parse_json(state.get(RECIPE) or "null")  # as text, which has a depth of its own
    found: dict[str, Any] = state
    return found


def _load(context: RunContext, checkpoint: Path, roles: Sequence[str]) -> "dict[str, Policy]":
    """The model of every role: from the checkpoint if it has one, else from the recipe."""
    from safetensors.torch import load_file

    models: dict[str, Policy] = {}
    for role in sorted(context.recipe.models, key=lambda role: copied_last(role, context.recipe.models)):
        model, folder = context.recipe.models[role], checkpoint / "models" / role
        if role in roles and (_folder_is_exact(model) or model.source == "made"):
            models[role] = context.load(role, replace(model, source=str(folder), shape=None, base=None), models)
        elif role in roles or not (model.is_remote or _is_later(model)):
            models[role] = context.load(role, model, models)
        if role in roles and not _folder_is_exact(model):
            path = checkpoint / f"weights-{role}.safetensors"
            with guard(f"{path} does not hold the weights of role {role}"):
                _put_back(models[role], load_file(path))
    return models


def _is_ours(model: Model) -> bool:
    """Whether the weights exist only in this run: they were trained, merged, or copied from a trained role."""
    return model.trained or _is_later(model)


def _is_later(model: Model) -> bool:
    """Whether the model is copied or merged by a stage, and does not exist before it."""
    return model.source.startswith("role:") or model.source == "made"


def keeps_base(model: Model) -> bool:
    """Whether only adapters are trained, on a base that can be read again: a checkpoint need not hold it.

    A run is not resumed with another base (`posttrain.runs.changes.check_models`).
    """
    return model.lora is not None and model.source != "new" and not _is_later(model)


def _folder_is_exact(model: Model) -> bool:
    """Whether a saved Hugging Face folder has every trained parameter exactly."""
    return model.lora is None and model.head == "language" and not model.shared


def _own_weights(policy: "Policy", model: Model) -> "dict[str, Tensor]":
    """Copies of every parameter that cannot be had elsewhere: those that are trained, and all of a role's copy, since
    the role that it was copied from has moved on; shared ones have not.
    """
    copied = _is_later(model) and not model.shared
    return {
        name: parameter.detach().cpu().clone().contiguous()
        for name, parameter in policy.named_parameters()
        if copied or parameter.requires_grad
    }


def _put_back(policy: "Policy", tensors: "Mapping[str, Tensor]") -> None:
    """Set parameters to saved values, bit for bit."""
    import torch

    parameters = dict(policy.named_parameters())
    with torch.no_grad():
        for name, tensor in tensors.items():
            parameters[name].copy_(tensor)


def _check_recipe(store: RunStore, saved: str | None, recipe: Recipe) -> None:
    """Raise `UserError` where a checkpoint was written under another recipe, and the change was not accepted."""
    changed = recipe_changes(parse_json(saved) if saved else None, recipe)
    if changed and not any(RECIPE in entry for entry in store.history()):
        raise UserError(
            f"the newest checkpoint of {store.folder} was written under another recipe than recipe.yaml holds: "
            f"{'; '.join(changed)}. Put back what was there, or take the new one with posttrain resume --accept-changes"
        )


def _check_threads(threads: int) -> None:
    """Use as many threads as the run did: another number rounds differently. Raises `UserError` where it cannot."""
    import torch

    torch.set_num_threads(threads)
    if torch.get_num_threads() != threads:
        raise UserError(
            f"the run used {threads} CPU threads and this process has {torch.get_num_threads()}; a resumed run is "
            "bitwise the same only with as many: set OMP_NUM_THREADS and try again"
        )
