"""Loads the policy of a role: new weights, a folder, a GGUF file, or a copy of another role."""

from collections.abc import Mapping
from pathlib import Path

import torch

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.errors.temporary import temporary_folder
from posttrain.models import Model
from posttrain.models.sources import find_model
from posttrain.policies import Policy
from posttrain.policies import controllers as controlled
from posttrain.policies.comet import is_comet, open_comet
from posttrain.policies.flow import is_flow, open_flow
from posttrain.policies.folder import bundled, bundled_names, is_finite
from posttrain.policies.gguf.reading import open_model
from posttrain.policies.language_model import LanguageModelPolicy, open_language_model
from posttrain.policies.latent_steps import LatentPolicy, open_latent, stored_settings, with_latent
from posttrain.policies.lora import is_adapter
from posttrain.policies.sparse_coder import is_sparse_coder, open_sparse_coder


def load_policy(role: str, model: Model, others: Mapping[str, Policy], device: torch.device) -> Policy:
    """Make the policy that a recipe's `Model` names. Raises `UserError` for a folder that cannot be used."""
    if model.lora is not None and not model.trained:
        raise UserError(f"models.{role}: lora is a way of training the model, but trained is false; change one of them")
    try:
        copied = model.source.startswith("role:")
        policy = _copy(role, model, others) if copied else _read(role, model)
        if isinstance(policy, LanguageModelPolicy):
            policy.tokenizer = policy.tokenizer.closing_with(model.read_at)
    except UserError as error:
        raise UserError(f"models.{role}: {error}") from None
    for name, parameter in policy.named_parameters():
        parameter.requires_grad_(model.trained and policy.is_free(name))
    policy.to(device)
    if not copied:
        _check_finite(role, model, policy)
    return policy


def _check_finite(role: str, model: Model, policy: Policy) -> None:
    """Raise `UserError` for weights that are NaN or infinite, in the type that the model has here."""
    for name, parameter in policy.named_parameters():
        if not is_finite(parameter.detach()):
            broken = int((~torch.isfinite(parameter.detach())).sum())
            raise UserError(
                f"models.{role}: '{model.source}': tensor '{name.removeprefix('body.')}' holds {broken:,} of "
                f"{parameter.numel():,} values that are not finite (NaN or infinity) in {model.dtype}; the file is "
                "damaged, or of a run that diverged: copy or download it again"
            )


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
    if model.base is not None:
        raise UserError(
            f"base is '{model.base}', but '{model.source}' is no adapter, which has no base; leave base out"
        )
    if name not in others:
        raise UserError(f"source is '{model.source}', but there is no role '{name}'; {nearest(name, others)}")
    if model.shared and not isinstance(others[name], LanguageModelPolicy):
        raise UserError(f"shared weights are those of language models, and '{name}' is none; leave shared out")
    made = others[name].copied(role, model)
    if model.controllers is not None and not isinstance(made, controlled.ControlledPolicy):
        if not isinstance(made, LanguageModelPolicy):
            raise UserError(f"controllers are for language models, and '{name}' is none; leave controllers out")
        return controlled.with_controllers(made, model.controllers)
    if model.latent_steps is None or isinstance(made, LatentPolicy):
        return made
    if not isinstance(made, LanguageModelPolicy):
        raise UserError(f"latent steps are for language models, and '{name}' is none; leave latent_steps out")
    return with_latent(made, model.latent_steps)


def _read(role: str, model: Model) -> Policy:
    """A policy with random weights, or from a bundled model, a folder, a GGUF file, or the folder of an adapter."""
    if (model.source == "new") != (model.shape is not None):
        raise UserError(
            f"source is '{model.source}' and shape is {'not ' if model.shape is None else ''}given; a shape is for "
            "source: new, which needs one"
        )
    if model.shape is not None:
        with temporary_folder("model") as made:
            return _open(role, model, model.shape.make(made / "new"))
    return _open(role, model, folder_of(role, model))


def folder_of(role: str, model: Model) -> Path:
    """The folder or file of a model that is neither new nor another role's."""
    source = model.source
    return bundled(source) if source in bundled_names() else find_model(source, role)


def _open(role: str, model: Model, path: Path) -> Policy:
    """A policy from a folder, of the kind that its config names."""
    if is_comet(path):
        return open_comet(role, model, path)
    if model.base is not None and not is_adapter(path):
        raise UserError(
            f"base is '{model.base}', but '{model.source}' is no adapter, which has no base; leave base out"
        )
    latent = model.latent_steps or (
        stored_settings(path) if model.head == "language" and not is_adapter(path) else None
    )
    if latent is not None:
        return open_latent(role, model, latent, path)
    steered = model.controllers or (None if is_adapter(path) else controlled.stored_settings(path))
    if steered is not None:
        return controlled.open_controlled(role, model, steered, path)
    if not is_adapter(path):
        folder = open_model(path)
        if is_flow(folder):
            return open_flow(role, model, folder)
        if is_sparse_coder(folder):
            return open_sparse_coder(role, model, folder)
    return open_language_model(role, model, path)
