"""Loads the policy of a role: new weights, a folder, or a copy of another role."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.flow import is_flow, open_flow
from posttrain.policies.folder import bundled, bundled_names, open_folder
from posttrain.policies.language_model import LanguageModelPolicy, open_language_model
from posttrain.policies.lora import is_adapter


def load_policy(role: str, model: Model, others: Mapping[str, Policy], device: torch.device) -> Policy:
    """Make the policy that a recipe's `Model` names. Raises `UserError` that says why a folder cannot be used."""
    if model.lora is not None and not model.trained:
        raise UserError(f"models.{role}: lora says how the model is trained, but trained is false; change one of them")
    try:
        copied = model.source.startswith("role:")
        policy = _copy(role, model, others) if copied else _read(role, model)
    except UserError as error:
        raise UserError(f"models.{role}: {error}") from None
    for name, parameter in policy.named_parameters():
        parameter.requires_grad_(model.trained and policy.is_free(name))
    return policy.to(device)


def load_language_model(
    role: str, model: Model, others: Mapping[str, Policy], device: torch.device
) -> LanguageModelPolicy:
    """A policy that must be a language model. Raises `UserError` for one that is not."""
    policy = load_policy(role, model, others, device)
    if not isinstance(policy, LanguageModelPolicy):
        raise UserError(f"models.{role}: a language model is needed here, and '{model.source}' is none")
    return policy


def _copy(role: str, model: Model, others: Mapping[str, Policy]) -> Policy:
    """A copy of another role's model as it is now."""
    name = model.source.removeprefix("role:")
    if name not in others:
        raise UserError(f"source is '{model.source}', but there is no role '{name}'; {nearest(name, others)}")
    return others[name].copied(role, model)


def _read(role: str, model: Model) -> Policy:
    """A policy with random weights, or from a bundled model, a model folder, or the folder of an adapter."""
    if (model.source == "new") != (model.shape is not None):
        raise UserError(
            f"source is '{model.source}' and shape is {'not ' if model.shape is None else ''}given; a shape is for "
            "source: new, which needs one"
        )
    if model.shape is not None:
        with TemporaryDirectory() as made:
            return _open(role, model, model.shape.make(Path(made) / "new"))
    source = model.source
    return _open(role, model, bundled(source) if source in bundled_names() else Path(source).expanduser())


def _open(role: str, model: Model, path: Path) -> Policy:
    """A policy from a folder, of the kind that its config says."""
    if not is_adapter(path) and is_flow(folder := open_folder(path)):
        return open_flow(role, model, folder)
    return open_language_model(role, model, path)
