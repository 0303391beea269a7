"""The content of a checkpoint, and how a run is restored from it exactly.

    checkpoints/step_000050/
        state.json                   step, stage, memory of every part, learner counters, sizes of the record's files
        models/<role>/               an ordinary Hugging Face folder: usable as it is
        weights-<role>.safetensors   only where that folder is not exact (adapters are merged there, heads left out)
        learner-<role>.safetensors   optimizer state

Numbers are JSON and tensors are safetensors: reading a checkpoint never runs code.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs import checkpoints
from posttrain.runs.bench import Bench
from posttrain.runs.changes import recipe_changes
from posttrain.runs.environment import RECIPE
from posttrain.runs.files import write_file
from posttrain.runs.store import RunStore

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.policies import Policy

ROLLED_BACK = "rolled back"
"""Kind of the entry in a run's history that says that an alarm made it go back."""

LearnerState = tuple[Mapping[str, object], Mapping[str, "Tensor"]]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A moment between two steps."""

    models: "Mapping[str, Policy]" = field(default_factory=dict)
    step: int = 0
    """Steps of the whole run that are done."""
    stage: int = 0
    """Place of the stage to go on with."""
    steps_done: int = 0
    """Steps of that stage that are done."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    learners: "Mapping[str, LearnerState]" = field(default_factory=dict)
    position: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the record's files, to cut them back to; empty cuts them to nothing."""
    roll_backs: int = 0
    """Times that an alarm has made the run go back."""
    resumed: bool = False

    @classmethod
    def empty(cls) -> "Snapshot":
        """Nothing to go on from."""
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
    """Write a checkpoint atomically; older ones beyond `recipe.checkpoints.keep` go.

    A `healthy` one is one that alarms may go back to: the newest of those stays in any case.
    """
    import torch
    from safetensors.torch import save_file

    own = {role: policy for role, policy in models.items() if _is_ours(recipe.models[role])}
    state = {
        "step": step,
        "stage": stage,
        "steps_done": steps_done,
        "memory": memory or {},
        "roll_backs": roll_backs,
        "healthy": healthy,
        "learners": {role: numbers for role, (numbers, _) in (learners or {}).items()},
        "versions": {role: policy.version for role, policy in models.items()},
        "roles": sorted(own),
        "position": store.position(),
        "threads": torch.get_num_threads(),
        RECIPE: json.dumps(to_tree(recipe)),  # as text: keys are sorted below, and the order of stages counts
    }

    def write(folder: Path) -> None:
        for role, policy in own.items():
            policy.save(folder / "models" / role)
            if not _folder_is_exact(recipe.models[role]):
                save_file(_own_weights(policy, recipe.models[role]), folder / f"weights-{role}.safetensors")
        for role, (_, tensors) in (learners or {}).items():
            save_file(dict(tensors), folder / f"learner-{role}.safetensors")
        write_file(folder / "state.json", json.dumps(state, indent=1, sort_keys=True))

    return checkpoints.save(
        store.folder / "checkpoints", f"step_{step:06d}_{stage}", write, recipe.checkpoints.keep, _was_healthy
    )


def newest_snapshot(store: RunStore, bench: Bench) -> Snapshot | None:
    """The state of the newest good checkpoint; None where there is none.

    Once an alarm has made the run go back, of the checkpoints before that only those count that were saved while no
    alarm was raised.
    """
    from safetensors.torch import load_file

    folder = store.folder / "checkpoints"
    checkpoints.sweep(folder)
    roll_backs = sum(entry["kind"] == ROLLED_BACK for entry in store.history())
    found = checkpoints.newest(
        folder,
        lambda bad, why: store.log_history("bad checkpoint", f"{bad.name} is damaged and was passed over: {why}"),
        lambda path: _state(path)["roll_backs"] == roll_backs or _was_healthy(path),
    )
    if found is None:
        return None
    state = _state(found)
    _check_recipe(store, state.get(RECIPE), bench.recipe)
    _check_threads(state["threads"])
    models = _load(bench, found, state["roles"])
    for role, version in state["versions"].items():
        models[role].version = version
    learners = {
        role: (numbers, load_file(found / f"learner-{role}.safetensors")) for role, numbers in state["learners"].items()
    }
    return Snapshot(
        models=models,
        step=state["step"],
        stage=state["stage"],
        steps_done=state["steps_done"],
        memory=state["memory"],
        learners=learners,
        position=state["position"],
        roll_backs=roll_backs,
        resumed=True,
    )


def _was_healthy(checkpoint: Path) -> bool:
    """Whether no alarm was raised when it was saved."""
    return bool(_state(checkpoint)["healthy"])


def _state(checkpoint: Path) -> dict[str, Any]:
    """The numbers of a checkpoint."""
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    return state


def _load(bench: Bench, checkpoint: Path, roles: Sequence[str]) -> "dict[str, Policy]":
    """Every role's model: from the checkpoint where it is there, else from the recipe."""
    from safetensors.torch import load_file

    models: dict[str, Policy] = {}
    for role in sorted(bench.recipe.models, key=lambda role: bench.recipe.models[role].source.startswith("role:")):
        model, folder = bench.recipe.models[role], checkpoint / "models" / role
        if role in roles and (_folder_is_exact(model) or model.source == "made"):
            models[role] = bench.load(role, replace(model, source=str(folder), shape=None), models)
        elif role in roles or not (model.is_remote or _is_later(model)):
            models[role] = bench.load(role, model, models)
        if role in roles and not _folder_is_exact(model):
            _put_back(models[role], load_file(checkpoint / f"weights-{role}.safetensors"))
    return models


def _is_ours(model: Model) -> bool:
    """Whether the weights exist nowhere but in this run: they were trained, made, or copied from a trained role."""
    return model.trained or _is_later(model)


def _is_later(model: Model) -> bool:
    """Whether the model is copied or made by a stage, and is not there before it."""
    return model.source.startswith("role:") or model.source == "made"


def _folder_is_exact(model: Model) -> bool:
    """Whether a saved Hugging Face folder holds every trained number as it was."""
    return model.lora is None and model.head == "language"


def _own_weights(policy: "Policy", model: Model) -> "dict[str, Tensor]":
    """Copies of every parameter that cannot be had elsewhere: those that are trained, and all of a role's copy, since
    the role that it was copied from has moved on.
    """
    copied = _is_later(model)
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
    """Raise `UserError` where a checkpoint was written under another recipe, and nobody accepted the change."""
    changed = recipe_changes(json.loads(saved) if saved else None, recipe)
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
