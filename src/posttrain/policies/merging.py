"""Merges several models of the same shape, tensor by tensor.

Adapters are merged into the weights first, since the average of two products is not the product of two averages. Tied
weights are one tensor, and merged once. Sums are in float64 and are rounded to the new model's type at the end. Buffers
(tables of positions, counts) are not learned: they are the first model's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from posttrain.components.merges import Merge
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies._shape import Shape
from posttrain.policies.decoder import Decoder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_language_model
from posttrain.policies.lora import merged_state

NOT_OF_THE_SHAPE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "architectures")
"""Settings of a config that may differ between models that can be merged; so may the ids of special tokens. The shape
of the native decoder has none of them."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    """A model that was made of others."""

    policy: LanguageModelPolicy
    distances: Mapping[str, float]
    """By source: norm of what the new weights differ from its weights by, over the norm of its weights."""


def merge(role: str, model: Model, sources: Mapping[str, Policy], method: Merge) -> Merged:
    """A model in a role, made of the sources' models in their order. Raises `UserError` for models that do not fit.

    `model` sets the new one's type, head, and whether it is trained; its `source` is ignored.
    """
    members = {name: policy for name, policy in sources.items() if isinstance(policy, LanguageModelPolicy)}
    assert len(members) == len(sources), "the only policies that there are"
    method.check(len(members))
    if model.lora is not None:
        raise UserError(f"models.{role}: a merged model has all its weights, not adapters; leave lora out")
    states = {name: merged_state(policy) for name, policy in members.items()}
    first = next(iter(members))
    for name in members:
        _check_alike(members[first], members[name], (states[first], states[name]), (first, name))
    if model.head != members[first].head:
        raise UserError(f"models.{role}.head is {model.head}, but {first} has a {members[first].head} head")
    device = next(members[first].parameters()).device
    policy = load_language_model(role, replace(model, source=f"role:{first}", shape=None, base=None), members, device)
    squares = {name: [0.0, 0.0] for name in members}
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            tensors = [states[member][name].to(device, torch.float64) for member in members]
            parameter.copy_(method(name, tensors))
            for (_, sums), tensor in zip(squares.items(), tensors, strict=True):
                sums[0] += float((parameter.double() - tensor).square().sum())
                sums[1] += float(tensor.square().sum())
    return Merged(policy=policy, distances={name: (apart / own) ** 0.5 for name, (apart, own) in squares.items()})


def _check_alike(
    first: LanguageModelPolicy,
    other: LanguageModelPolicy,
    states: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    names: tuple[str, str],
) -> None:
    """Raise `UserError` with the difference of two models that cannot be merged."""
    what = f"{names[0]} and {names[1]} cannot be merged"
    if first.head != other.head:
        raise UserError(f"{what}: the first has a {first.head} head, the second a {other.head} head")
    settings, others = _settings(first), _settings(other)
    for key in sorted(settings.keys() | others.keys()):
        if settings.get(key) != others.get(key):
            raise UserError(
                f"{what}: '{key}' of their architectures is {settings.get(key)!r:.80} and {others.get(key)!r:.80}; "
                "only models of one architecture have weights that mean the same"
            )
    for name in sorted(states[0].keys() ^ states[1].keys()):
        has = names[0] if name in states[0] else names[1]
        raise UserError(f"{what}: only {has} has a tensor '{name}'")
    for name, tensor in states[0].items():
        if tensor.shape != states[1][name].shape:
            raise UserError(f"{what}: tensor '{name}' is {list(tensor.shape)} and {list(states[1][name].shape)}")
    mine, theirs = first.tokenizer.vocabulary, other.tokenizer.vocabulary
    differing = sorted(token for token in mine.keys() | theirs.keys() if mine.get(token) != theirs.get(token))
    if differing:
        token = differing[0]
        raise UserError(
            f"{what}: {len(differing)} tokens of their tokenizers differ, so that rows of the embedding mean different "
            f"things; token {token!r} has id {mine.get(token)} in the first and {theirs.get(token)} in the second"
        )


def _settings(policy: LanguageModelPolicy) -> dict[str, Any]:
    """What determines the meaning of a model's weights: of the native decoder its shape, otherwise its config."""
    config = json.loads(policy.origin.config)
    if isinstance(policy.body, Decoder):
        shape = Shape.from_config(config)
        found = {field.name: getattr(shape, field.name) for field in fields(shape) if field.name != "rope"}
        return found | {f"rope_{name}": value for name, value in vars(shape.rope).items()}
    return {k: v for k, v in config.items() if k not in NOT_OF_THE_SHAPE and not k.endswith("_token_id")}
