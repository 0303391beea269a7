"""COMET models of translations as the model of a role: an encoder, and a regression over its sentence embeddings.

Source: COMET (Rei et al. 2020, arXiv:2009.09025) and COMET-Kiwi (Rei et al. 2022, arXiv:2209.06243), in the layout that
Unbabel/COMET publishes: ``hparams.yaml`` and ``checkpoints/model.ckpt``, a checkpoint of PyTorch Lightning. Of that
file tensors and plain values are read and nothing else, since a pickle can hold code; ``model.safetensors`` beside the
settings, with the same names, goes before it. A checkpoint holds neither the sizes of the encoder nor its tokenizer:
both are read from a folder of transformers, ``encoder/`` beside them or the role's ``base``. Nothing is fetched.

    regression_metric               [mt, ref, mt ref, |mt - ref|, mt src, |mt - src|] of three embeddings
    referenceless_regression_metric [mt, src, mt src, |mt - src|]
    unified_metric                  the first state of mt and src, ref, or both, read as one text; of three inputs
                                    with .1667 (src), .3333 (ref) and .5 (both)

An embedding is the mean of the states of all tokens (``avg``), the largest (``max``) or the first (``cls``), of one
layer or of a mixture of all, each normalized over the whole text. A sequence is the translation, the source and, if
there is one, the reference, each between a start and an end token. Every text is read alone, without padding, so that
no score depends on what is scored beside it; in one pass a text that comes again is read once.

L tokens, D width, T positions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch
from ruamel.yaml import YAML
from torch import Tensor, nn

from posttrain.errors import UserError
from posttrain.errors.foreign import check_file, file_in, guard, read_json, read_text, shown
from posttrain.models import Model
from posttrain.models.sources import find_model
from posttrain.policies import Body, Cache, Packed, Policy
from posttrain.policies.folder import open_weights
from posttrain.policies.tokenizer import LARGEST, Tokenizer
from posttrain.signals import SCORE, SCORES, Signal
from posttrain.types import IntArray, Message, Segment, Task

FEATURES: Final = {"regression_metric": 6, "referenceless_regression_metric": 4, "unified_metric": 1}
"""Embeddings that the head takes, by class."""
SHARES: Final = (0.1667, 0.3333, 0.5)
SETTINGS, SAFE, CHECKPOINT = "hparams.yaml", "model.safetensors", "model.ckpt"
CONTEXT: Final = 1 << 17
"""Tokens of a sequence; of each text as many are read as the encoder has places."""
Ids = tuple[int, ...]


class Sentences(Tokenizer):
    """Encodes each text between the tokens that begin and end it."""

    def encode_prompt(self, prompt: str | Sequence[Message], *, allow: Iterable[str] = ()) -> IntArray:
        """Ids of a text, or of the contents of messages."""
        if not isinstance(prompt, str):
            prompt = "\n".join(message["content"] for message in prompt)
        return np.array([self.begin, *self.encode_open(prompt), self.end], np.int64)

    @property
    def begin(self) -> int:
        """The token before a text."""
        return self._edge("bos_token", "cls_token")

    @property
    def end(self) -> int:
        """The token after it."""
        return self._edge("eos_token", "sep_token")

    def _edge(self, *names: str) -> int:
        found = [number for name in names if (number := self._special_id(name)) is not None]
        if not found:
            raise UserError(f"the tokenizer '{self._where}' has no {' and no '.join(names)}, which stand around a text")
        return found[0]


@dataclass(frozen=True)
class Pass:
    """What is known in one pass: states by ids, since sources and references come again."""

    states: dict[Ids, Tensor]
    embeddings: dict[Ids, Tensor]


class Metric(Body):
    """The regression of a COMET model."""

    def __init__(self, settings: Mapping[str, Any], encoder: Any, vocabulary: int, begin: int, end: int) -> None:
        super().__init__()
        self.metric = str(settings.get("class_identifier"))
        if self.metric not in FEATURES:
            raise UserError(f"class_identifier is '{shown(self.metric, 60)}'; known are {', '.join(FEATURES)}")
        self.settings, self.encoder = settings, encoder
        self.inputs = tuple(settings.get("input_segments") or ("mt", "src", "ref"))
        self.begin, self.end = begin, end
        self.width, self.vocabulary_size, self.context = encoder.config.hidden_size, vocabulary, CONTEXT
        self.places = int(encoder.config.max_position_embeddings) - 2  # the first two are for padding
        self.estimator = _head(FEATURES[self.metric] * self.width, settings)
        self.mixture = nn.Parameter(torch.zeros(encoder.config.num_hidden_layers + 1))
        self.gamma = nn.Parameter(torch.ones(1))

    def score(self, token_ids: Sequence[int], known: Pass) -> tuple[Tensor, float]:
        """The score of a sequence, NaN where it lacks a reference that is needed, and the share of it that is read."""
        texts = self._texts(token_ids)
        if self.metric == "unified_metric":
            return self._unified(texts, known)
        wanted = 2 if self.metric == "referenceless_regression_metric" else 3
        if len(texts) < wanted:
            return torch.full((), torch.nan), 1.0
        mt, *others = (self._embedding(text, known) for text in texts[:wanted])
        pairs = [part for other in reversed(others) for part in (mt * other, (mt - other).abs())]
        features = torch.cat((mt, others[-1], *pairs))
        total = sum(map(len, texts[:wanted]))
        return self.estimator(features)[0], sum(min(len(text), self.places) for text in texts[:wanted]) / total

    def _unified(self, texts: Sequence[Ids], known: Pass) -> tuple[Tensor, float]:
        given = dict(zip(("mt", "src", "ref"), texts, strict=False))
        beside = [given[name] for name in ("src", "ref") if name in self.inputs and name in given]
        if not beside:
            return torch.full((), torch.nan), 1.0
        reads = [beside[:1], beside[1:], beside] if len(beside) == 2 else [beside]
        joined = [_joined([texts[0], *own], self.end) for own in reads]
        scores = [self.estimator(self._states(ids[: self.places], known)[0])[0] for ids in joined]
        read, total = (sum(map(len, lists)) for lists in ([ids[: self.places] for ids in joined], joined))
        if len(scores) == 1:
            return scores[0], read / total
        return sum((w * one for w, one in zip(SHARES, scores, strict=True)), torch.zeros_like(scores[0])), read / total

    def _texts(self, token_ids: Sequence[int]) -> list[Ids]:
        """The texts of a sequence, which begin with their start token."""
        starts = [place for place, token in enumerate(token_ids) if token == self.begin] or [0]
        return [tuple(token_ids[a:b]) for a, b in zip(starts, [*starts[1:], len(token_ids)], strict=True)]

    def _embedding(self, ids: Ids, known: Pass) -> Tensor:
        if ids not in known.embeddings:
            cut = ids if len(ids) <= self.places else (*ids[: self.places - 1], self.end)
            states_LD, pool = self._states(cut, known), self.settings.get("pool", "avg")
            known.embeddings[ids] = (
                states_LD.mean(0) if pool == "avg" else states_LD.amax(0) if pool == "max" else states_LD[0]
            )
        return known.embeddings[ids]

    def _states(self, ids: Ids, known: Pass) -> Tensor:
        """[L, D] of one layer, or mixed."""
        if ids not in known.states:
            read = torch.tensor([ids], device=self.gamma.device)
            every: Any = self.encoder(input_ids=read, attention_mask=torch.ones_like(read), output_hidden_states=True)
            known.states[ids] = self._mixed([states_BLD[0] for states_BLD in every.hidden_states])
        return known.states[ids]

    def _mixed(self, layers: Sequence[Tensor]) -> Tensor:
        chosen = self.layer
        if chosen != "mix":
            return layers[int(chosen)]
        if self.settings.get("layer_norm", True):
            layers = [(own - own.mean()) / torch.sqrt(own.var(correction=0) + 1e-12) for own in layers]
        sparse = self.settings.get("layer_transformation") == "sparsemax"
        weights = sparsemax(self.mixture) if sparse else self.mixture.softmax(0)
        parts = (w * own for w, own in zip(weights, layers, strict=True))
        mixed: Tensor = self.gamma * sum(parts, torch.zeros_like(layers[0]))
        return mixed

    @property
    def layer(self) -> str | int:
        """Which layer's states are read; ``mix`` for a mixture of all."""
        name = "sent_layer" if self.metric == "unified_metric" else "layer"
        found: str | int = self.settings.get(name, "mix")
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew in another process: how transformers records hidden states is not part of a copy."""
        made = (self.settings, self.encoder.config, self.vocabulary_size, self.begin, self.end)
        return _remade, (*made, self.gamma.dtype, self.state_dict())

    def new_cache(self, slots: int, capacity: int) -> Cache:
        """It has none. Raises `UserError`."""
        raise UserError("a COMET model scores translations and writes no text")


def _remade(
    settings: Mapping[str, Any], config: Any, vocabulary: int, begin: int, end: int, dtype: torch.dtype, state: Any
) -> Metric:
    """A model from what `Metric.__reduce__` gives; it is not trained."""
    from transformers import AutoModel

    encoder = AutoModel.from_config(config, add_pooling_layer=False)  # type: ignore[no-untyped-call]
    body = Metric(settings, encoder, vocabulary, begin, end).to(dtype)
    body.load_state_dict(state)
    return body.requires_grad_(False).eval()


class CometPolicy(Policy):
    """A COMET model in a role. It is not trained."""

    GIVES: ClassVar[Mapping[str, frozenset[Signal]]] = {"reward": frozenset({SCORE, SCORES})}
    called: ClassVar[str] = "COMET model"

    def __init__(self, role: str, body: Metric, tokenizer: Sentences) -> None:
        super().__init__()
        self.role, self.body, self.tokenizer, self.head, self.version = role, body, tokenizer, "reward", 0
        self.eval()

    @classmethod
    def given_by(cls, model: Model) -> frozenset[Signal]:
        """Scores, whatever the settings."""
        return cls.GIVES["reward"]

    def prompt(self, task: Task) -> Segment:
        """A task's prompt as one text."""
        return Segment(actor="prompt", token_ids=self.tokenizer.encode_prompt(task.prompt), text=str(task.prompt))

    @torch.no_grad()
    def evaluate(
        self,
        packed: Packed,
        positions_T: Tensor,
        needs: frozenset[Signal] = frozenset(),
        *,
        temperature: float = 1.0,
        others: Mapping[str, Policy] | None = None,
        foresight: float = 0.0,
    ) -> Mapping[Signal, Tensor]:
        """[T] scores of the sequences up to and including the tokens at `positions_T`. As ``scores``, [T, 2]: that and
        the share of the sequence that the encoder had places for.
        """
        self.check_needs(needs, others or {})
        assert isinstance(self.body, Metric) and packed.after is None, "scored as it is"
        ids, known, found = packed.token_ids_L.tolist(), Pass({}, {}), []
        for place in positions_T.tolist():
            start = max(begin for begin in packed.starts[:-1] if begin <= place)
            value, share = self.body.score(ids[start : place + 1], known)
            found.append((float(value), share))
        outputs_TO = torch.tensor(found, dtype=torch.float32).reshape(-1, 2)
        return {SCORE: outputs_TO[:, 0], SCORES: outputs_TO}

    def copied(self, role: str, model: Model) -> Policy:
        """Raises `UserError`: a copy would be the same model."""
        raise UserError(f"a COMET model is not trained, so a copy would be the same; name the role '{self.role}'")


def is_comet(folder: Path) -> bool:
    """Whether a folder holds a COMET model."""
    own = any((folder / name).is_file() for name in (SETTINGS, f"checkpoints/{CHECKPOINT}"))
    return own and not (folder / "config.json").is_file()


def encoder_folder(folder: Path, model: Model) -> Path:
    """The folder of the encoder's sizes and tokenizer."""
    return find_model(model.base) if model.base is not None else folder / "encoder"


def open_comet(role: str, model: Model, folder: Path) -> CometPolicy:
    """Read a COMET model. Raises `UserError` that names what is missing or does not fit."""
    given: dict[str, object] = {
        "trained": model.trained,
        "lora": model.lora,
        "projection": model.projection,
        "latent": model.latent,
    }
    given |= {"context": model.context, "head": model.head == "value", "outputs": model.outputs > 1}
    given |= {"read_at": model.read_at, "latent_steps": model.latent_steps, "controllers": model.controllers}
    if wrong := next((name for name, value in given.items() if value), None):
        raise UserError(f"'{folder}' is a COMET model, which only scores translations; leave {wrong} out")
    settings, path = _settings(folder), encoder_folder(folder, model)
    _check_encoder(path, settings)
    tokenizer, stored = Sentences.load(path), _tensors(folder)
    with torch.device("meta"):
        _check_fit(folder, _named(_made(folder, path, settings, tokenizer, len(stored))), stored)
    body = _made(folder, path, settings, tokenizer, len(stored))
    for name, own in _named(body).items():
        own.data.copy_(stored[name])
    return CometPolicy(role, body.to(getattr(torch, model.dtype)), tokenizer)


def comet_shapes(folder: Path, model: Model) -> tuple[dict[str, Any], Mapping[str, tuple[int, ...]]]:
    """The encoder's config, and the shape of every tensor by name; no tensor is read."""
    path = encoder_folder(folder, model)
    _check_encoder(path, {})
    safe = folder / SAFE
    if safe.is_file():
        with open_weights(safe) as file, guard(f"'{safe}' holds no tensors"):
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    else:
        shapes = {name: tuple(own.shape) for name, own in _checkpoint(folder, "meta").items()}
    return read_json(file_in(path, "config.json"), LARGEST[""]), shapes


def comet_files(folder: Path) -> list[Path]:
    """Files beside those of the encoder that the model is read from."""
    names = (folder / SETTINGS, folder / SAFE, folder / "checkpoints" / CHECKPOINT, folder / CHECKPOINT)
    return [path for path in names if path.is_file()]


def sparsemax(values: Tensor) -> Tensor:
    """[K] the nearest probabilities (Martins and Astudillo 2016)."""
    ordered = values.sort(descending=True).values
    sums, count = ordered.cumsum(0) - 1.0, torch.arange(1, len(values) + 1, device=values.device)
    kept = int((ordered * count > sums).sum())
    return (values - sums[kept - 1] / kept).clamp(min=0.0)


def _joined(texts: Sequence[Ids], end: int) -> Ids:
    """Texts as one: <s> a </s></s> b </s>."""
    first, *rest = texts
    return tuple(token for text in (first, *((end, *own[1:]) for own in rest)) for token in text)


def _named(body: Metric) -> dict[str, Tensor]:
    """The tensors of a model by their names in its checkpoint, without those that are numbers of places."""
    named = {f"encoder.model.{name}": own for name, own in body.encoder.state_dict().items()}
    named |= {f"estimator.ff.{name}": own for name, own in body.estimator.state_dict().items()}
    if body.layer == "mix":
        count = len(body.mixture)
        named |= {f"layerwise_attention.scalar_parameters.{i}": body.mixture[i : i + 1] for i in range(count)}
        named["layerwise_attention.gamma"] = body.gamma
    return {name: own for name, own in named.items() if not name.endswith(("position_ids", "token_type_ids"))}


def _check_fit(folder: Path, wanted: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
    """Raise `UserError` for a tensor that is not stored, or has another shape."""
    for name, own in wanted.items():
        if name not in stored:
            raise UserError(f"'{folder}': the checkpoint has no tensor '{name}'; is the encoder that of the model?")
        if stored[name].shape != own.shape:
            raise UserError(
                f"'{folder}': tensor '{name}' has the shape {list(stored[name].shape)}, and the settings of the "
                f"model and its encoder make it {list(own.shape)}"
            )


def _settings(folder: Path) -> Mapping[str, Any]:
    if not (folder / SETTINGS).is_file():
        raise UserError(f"'{folder}' has no {SETTINGS}, which holds the settings of a COMET model")
    file = file_in(folder, SETTINGS)
    with guard(f"'{file}' is no YAML with the settings of a model"):
        found = YAML(typ="safe", pure=True).load(read_text(file, LARGEST[""]))
        if not isinstance(found, Mapping):
            raise ValueError("no mapping")
    return {str(name): value for name, value in found.items()}


def _check_encoder(folder: Path, settings: Mapping[str, Any]) -> None:
    missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        named = settings.get("pretrained_model", "its encoder")
        raise UserError(
            f"'{folder}' has no {' and no '.join(missing)}; the checkpoint of a COMET model does not hold them: put "
            f"those of '{shown(named, 60)}' there, or name their folder as base"
        )


def _made(folder: Path, path: Path, settings: Mapping[str, Any], tokenizer: Sentences, stored: int) -> Metric:
    """The model without its weights; it has no more layers than `stored` tensors."""
    try:
        from transformers import AutoConfig, AutoModel
    except ImportError:
        raise UserError("the encoder of COMET is run by transformers; pip install 'posttrain[transformers]'") from None
    with guard(f"'{path}' holds no encoder that transformers can read"):
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        if config.num_hidden_layers > stored:
            raise ValueError(f"it has {config.num_hidden_layers} layers, and the checkpoint {stored} tensors")
        encoder = AutoModel.from_config(  # type: ignore[no-untyped-call]
            config, add_pooling_layer=False, trust_remote_code=False
        )
    with guard(f"'{folder / SETTINGS}' has no settings of a COMET model"):
        return Metric(settings, encoder.float(), config.vocab_size, tokenizer.begin, tokenizer.end)


def _head(width: int, settings: Mapping[str, Any]) -> nn.Sequential:
    """Linear layers with activations, in the order in which the checkpoint counts them."""
    layers: list[nn.Module] = []
    activation = getattr(nn, str(settings.get("activations", "Tanh")).title(), nn.Tanh)
    for size in settings.get("hidden_sizes") or (3072, 1024):
        layers += [nn.Linear(width, int(size)), activation(), nn.Dropout(0.0)]
        width = int(size)
    layers.append(nn.Linear(width, 1))
    if settings.get("final_activation"):
        layers.append(getattr(nn, str(settings["final_activation"]).title())())
    return nn.Sequential(*layers)


def _tensors(folder: Path) -> Mapping[str, Tensor]:
    safe = folder / SAFE
    if not safe.is_file():
        return _checkpoint(folder, "cpu")
    from safetensors.torch import load_file

    with guard(f"'{safe}' holds no tensors"):
        return load_file(file_in(folder, SAFE))


def _checkpoint(folder: Path, device: str) -> Mapping[str, Tensor]:
    """The tensors of a checkpoint of PyTorch Lightning. Raises `UserError` for one with anything but plain values."""
    places = [folder / "checkpoints" / CHECKPOINT, folder / CHECKPOINT]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UserError(f"'{folder}' has no checkpoints/{CHECKPOINT} and no {SAFE}: the weights are missing")
    check_file(path)
    with guard(f"'{path}' is no checkpoint of PyTorch"):
        foreign = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    if foreign:
        raise UserError(
            f"'{path}' holds {shown(', '.join(sorted(foreign)))} beside tensors and plain values, which may be code, "
            f"so it is not read. Write its tensors as {SAFE} where you trust it, with the names of its state_dict"
        )
    with guard(f"'{path}' is no checkpoint of tensors and plain values"):
        whole = torch.load(path, map_location=device, weights_only=True, mmap=True)
    stored = whole.get("state_dict") if isinstance(whole, Mapping) else None
    if not isinstance(stored, Mapping):
        held = ", ".join(sorted(map(str, whole))) if isinstance(whole, Mapping) else type(whole).__name__
        raise UserError(f"'{path}' is no checkpoint of PyTorch Lightning: it has no state_dict, but {shown(held)}")
    return {str(name): own for name, own in stored.items() if isinstance(own, Tensor)}
