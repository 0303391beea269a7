"""Merges several models of the same shape, tensor by tensor.

Adapters are merged into the weights first, since the average of two products is not the product of two averages. Tied
weights are one tensor, and merged once. Sums are in float64 and are rounded to the new model's type at the end. Buffers
(tables of positions, counts) are not learned: they are the first model's.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import torch
from torch import Tensor

from posttrain.components.merges import Merge, Whole
from posttrain.errors import UserError
from posttrain.errors.foreign import guard
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies._shape import Shape, not_native
from posttrain.policies.calibration import Text, input_means, sensitivities
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import INDEX_FILE, SINGLE_FILE, Folder, is_finite, open_folder, open_weights
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import folder_of, load_language_model
from posttrain.policies.lora import merged_state
from posttrain.policies.tokenizer import Tokenizer

NOT_OF_THE_SHAPE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "architectures")
"""Settings of a config that may differ between models that can be merged; so may the ids of special tokens. The shape
of the native decoder has none of them."""

_PART: Final = 1 << 20
"""Numbers of a tensor that are compared at a time."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    """A model that was made of others."""

    policy: LanguageModelPolicy
    distances: Mapping[str, float]
    """By source: norm of what the new weights differ from its weights by, over the norm of its weights."""


class StoredWeights(Mapping[str, Tensor]):
    """The parameters of a folder's plain decoder by the names of its policy, each read when it is used."""

    def __init__(self, folder: Folder, names: Sequence[str], dtype: torch.dtype) -> None:
        self._names, self._dtype = dict.fromkeys(names), dtype
        self._files = {name: folder.path / file for file, held in folder.shards.items() for name in held}

    def __getitem__(self, name: str) -> Tensor:
        """A parameter in the type that a policy has it in; every use reads it again."""
        assert name in self._names, "the names are those of the policy"
        inner = name.removeprefix("body.")
        with open_weights(self._files[inner]) as file, guard(f"'{self._files[inner]}': tensor '{inner}'"):
            stored: Tensor = file.get_tensor(inner).to(self._dtype, copy=True)
        if not is_finite(stored):
            raise UserError(f"'{self._files[inner]}': tensor '{inner}' holds values that are not finite")
        return stored

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._names)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._names)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Models that fit, of which only the first is in memory, to be written over."""

    policy: LanguageModelPolicy
    weights: Mapping[str, Mapping[str, Tensor]]
    """The parameters of each model by its name, in order."""
    load: Callable[[str], LanguageModelPolicy]
    """Loads one of them again."""
    first: str = ""
    """Source of the first model, as the user names it."""

    def tensors(self) -> Iterator[tuple[str, Sequence[Tensor]]]:
        """Every parameter with that of each model, in float64."""
        device = next(self.policy.parameters()).device
        for name, _ in self.policy.named_parameters():
            yield name, [own[name].to(device, torch.float64) for own in self.weights.values()]


def open_sources(models: Mapping[str, Model], device: torch.device) -> Sources:
    """The models to merge, in their order, on a device. Raises `UserError` for models that do not fit.

    What is in a plain folder is read tensor by tensor, so that two models are never in memory.
    """

    def load(name: str) -> LanguageModelPolicy:
        return load_language_model("policy", models[name], {}, device)

    weights: dict[str, Mapping[str, Tensor]] = {}
    (start, *others) = models
    first = load(start)
    state = merged_state(first)
    described = _Described.of(first, state)
    plain = isinstance(first.body, Decoder) and first.value_head is None and first.projection is None
    parameters, dtype = [name for name, _ in first.named_parameters()], next(first.parameters()).dtype
    folder = _plain_folder(models[start]) if plain else None
    kept = {name: tensor.clone() for name, tensor in state.items()} if folder is None else {}
    weights[start] = StoredWeights(folder, parameters, dtype) if folder is not None else kept
    for name in others:
        folder = _plain_folder(models[name]) if plain else None
        if folder is not None:
            _check_alike(described, _Described.of_folder(folder), (start, name))
            weights[name] = StoredWeights(folder, parameters, dtype)
            continue
        policy = load(name)
        weights[name] = own = merged_state(policy)
        _check_alike(described, _Described.of(policy, own), (start, name))
    return Sources(policy=first, weights=weights, load=load, first=models[start].source)


def _plain_folder(model: Model) -> Folder | None:
    """The folder of a plain decoder; None for an adapter, a GGUF file, and what is for a body of transformers."""
    path = folder_of("policy", model)
    if not ((path / SINGLE_FILE).is_file() or (path / INDEX_FILE).is_file()):
        return None
    folder = open_folder(path)
    return folder if not_native(folder.config) is None else None


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
    described = {name: _Described.of(members[name], states[name]) for name in members}
    for name in members:
        _check_alike(described[first], described[name], (first, name))
    if model.head != members[first].head:
        raise UserError(f"models.{role}.head is {model.head}, but {first} has a {members[first].head} head")
    device = next(members[first].parameters()).device
    policy = load_language_model(role, replace(model, source=f"role:{first}", shape=None, base=None), members, device)
    return blend(Sources(policy=policy, weights=states, load=members.__getitem__), method)


def blend(sources: Sources, method: Merge, calibration: Sequence[Sequence[Text]] = ()) -> Merged:
    """Write the merge over the weights of the sources' policy.

    `calibration` has texts for all models, or for each but the first (`posttrain.components.merges.Whole`).
    """
    squares = {name: [0.0, 0.0] for name in sources.weights}
    with torch.no_grad():
        survey = method.survey(_whole(sources, calibration))
        parameters = dict(sources.policy.named_parameters())
        for name, tensors in sources.tensors():
            parameters[name].copy_(method(name, tensors, survey))
            for (_, sums), tensor in zip(squares.items(), tensors, strict=True):
                apart, own = _squares(parameters[name], tensor)
                sums[0] += apart
                sums[1] += own
    return Merged(
        policy=sources.policy, distances={name: (a / max(b, 1e-300)) ** 0.5 for name, (a, b) in squares.items()}
    )


def _squares(new: Tensor, old: Tensor) -> tuple[float, float]:
    """Squared norms of the difference and of the second tensor, a part at a time."""
    parts = zip(torch.split(new.flatten(), _PART), torch.split(old.flatten(), _PART), strict=True)
    found = [(float((a.double() - b).square().sum()), float(b.square().sum())) for a, b in parts]
    return sum(a for a, _ in found), sum(b for _, b in found)


def _whole(sources: Sources, calibration: Sequence[Sequence[Text]]) -> Whole:
    """The models as a method sees them."""
    names = list(sources.weights)
    if len(calibration) > 1 and len(calibration) != len(names) - 1:
        raise UserError(
            f"there are {len(calibration)} calibration files for {len(names)} models; give one for all, or one for "
            "each but the first"
        )

    def texts(place: int) -> Sequence[Text]:
        if not calibration:
            raise UserError("this merge is informed by calibration texts, and there are none; add --calibration FILE")
        return calibration[place if len(calibration) > 1 else 0]

    def sensitive() -> list[dict[str, float]]:
        with torch.enable_grad():
            return [sensitivities(sources.load(name), texts(place)) for place, name in enumerate(names[1:])]

    return Whole(
        tensors=sources.tensors,
        inputs=lambda: input_means(sources.load(names[0]), texts(0)),
        sensitivities=sensitive,
    )


@dataclass(frozen=True, kw_only=True)
class _Described:
    """What must be equal in models that are merged."""

    head: str
    settings: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    vocabulary: Mapping[str, int]

    @classmethod
    def of(cls, policy: LanguageModelPolicy, state: Mapping[str, Tensor]) -> "_Described":
        """Of a model in memory."""
        settings = _settings(json.loads(policy.origin.config), native=isinstance(policy.body, Decoder))
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        return cls(head=policy.head, settings=settings, shapes=shapes, vocabulary=policy.tokenizer.vocabulary)

    @classmethod
    def of_folder(cls, folder: Folder) -> "_Described":
        """Of a plain decoder's folder, from the headers of its files."""
        settings = _settings(folder.config, native=True)
        left_out = ("lm_head.weight",) if settings["tied"] else ()
        shapes = {
            f"body.{name}": shape
            for name, shape in folder.shapes.items()
            if name not in left_out and not name.endswith("rotary_emb.inv_freq")
        }
        vocabulary = Tokenizer.load(folder.path).vocabulary
        return cls(head="language", settings=settings, shapes=shapes, vocabulary=vocabulary)


def _check_alike(first: _Described, other: _Described, names: tuple[str, str]) -> None:
    """Raise `UserError` with the difference of two models that cannot be merged."""
    what = f"{names[0]} and {names[1]} cannot be merged"
    if first.head != other.head:
        raise UserError(f"{what}: the first has a {first.head} head, the second a {other.head} head")
    settings, others = first.settings, other.settings
    for key in sorted(settings.keys() | others.keys()):
        if settings.get(key) != others.get(key):
            raise UserError(
                f"{what}: '{key}' of their architectures is {settings.get(key)!r:.80} and {others.get(key)!r:.80}; "
                "only models of one architecture have weights that mean the same"
            )
    for name in sorted(first.shapes.keys() ^ other.shapes.keys()):
        has = names[0] if name in first.shapes else names[1]
        raise UserError(f"{what}: only {has} has a tensor '{name}'")
    for name, shape in first.shapes.items():
        if shape != other.shapes[name]:
            raise UserError(f"{what}: tensor '{name}' is {list(shape)} and {list(other.shapes[name])}")
    mine, theirs = first.vocabulary, other.vocabulary
    differing = sorted(token for token in mine.keys() | theirs.keys() if mine.get(token) != theirs.get(token))
    if differing:
        token = differing[0]
        raise UserError(
            f"{what}: {len(differing)} tokens of their tokenizers differ, so that rows of the embedding mean different "
            f"things; token {token!r} has id {mine.get(token)} in the first and {theirs.get(token)} in the second"
        )


def _settings(config: dict[str, Any], *, native: bool) -> dict[str, Any]:
    """What determines the meaning of a model's weights: of the native decoder its shape, otherwise its config."""
    if native:
        shape = Shape.from_config(config)
        found = {field.name: getattr(shape, field.name) for field in fields(shape) if field.name != "rope"}
        return found | {f"rope_{name}": value for name, value in vars(shape.rope).items()}
    return {k: v for k, v in config.items() if k not in NOT_OF_THE_SHAPE and not k.endswith("_token_id")}
