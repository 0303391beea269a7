"""COMET models of translations from a user's folder: an encoder, and a regression head over its sentence embeddings.

Source: COMET (Rei et al. 2020, arXiv:2009.09025) and COMET-Kiwi (Rei et al. 2022, arXiv:2209.06243), in the layout that
Unbabel/COMET publishes, ``hparams.yaml`` and the tensors of ``checkpoints/model.ckpt``. That file can hold code, so
it is not read: its tensors are written as ``model.safetensors`` once, by the command that the error has. They are all
weights, but neither the sizes of the encoder nor its tokenizer; these are read from a folder of transformers,
``encoder/`` beside them or another. Nothing is fetched.

    regression_metric               [mt, ref, mt ref, |mt - ref|, mt src, |mt - src|] of three embeddings
    referenceless_regression_metric [mt, src, mt src, |mt - src|]
    unified_metric                  the first state of mt and src, ref, or both, read as one text; of three inputs
                                    with .1667 (src), .3333 (ref) and .5 (both)

An embedding is the mean of the states of all tokens (``avg``), the largest (``max``) or the first (``cls``), of one
layer or of a mixture of all, each normalized over the whole text. Texts are read one by one, without padding, so that
no score depends on what is scored beside it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from ruamel.yaml import YAML
from torch import Tensor, nn

from posttrain.errors import UserError
from posttrain.errors.foreign import guard

FEATURES: Final = {"regression_metric": 6, "referenceless_regression_metric": 4, "unified_metric": 1}
"""Embeddings that the head takes, by class."""
SHARES: Final = (0.1667, 0.3333, 0.5)
CONVERT: Final = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone() for k, v in '
    "torch.load('checkpoints/model.ckpt', weights_only=True)['state_dict'].items()}, 'model.safetensors')\""
)
"""Writes the tensors of a checkpoint; refuses those with code."""
LONGEST: Final = 10_000
"""Characters of a text that are tokenized; the encoder then reads as many tokens as it has places."""


class CometModel(nn.Module):
    """Scores translations."""

    def __init__(self, folder: Path, encoder: Path | None = None) -> None:
        """Read the model. Raises `UserError` that names what is missing or does not fit."""
        super().__init__()
        self.settings = _settings(folder)
        self.metric = str(self.settings.get("class_identifier"))
        if self.metric not in FEATURES:
            raise UserError(
                f"'{folder / 'hparams.yaml'}': class_identifier is '{self.metric}'; known are {', '.join(FEATURES)}"
            )
        self.inputs = tuple(self.settings.get("input_segments") or ("mt", "src", "ref"))
        self.tokenizer, self.encoder = _encoder(encoder or folder / "encoder", self.settings)
        width, layers = self.encoder.config.hidden_size, self.encoder.config.num_hidden_layers + 1
        self.estimator = _head(FEATURES[self.metric] * width, self.settings)
        self.mixture = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))
        self._load(folder, layers)
        self.eval()

    @property
    def needs_reference(self) -> bool:
        """Whether it cannot score without a reference."""
        return self.metric == "regression_metric" or (self.metric == "unified_metric" and "src" not in self.inputs)

    @torch.inference_mode()
    def score(self, source: str, translation: str, reference: str | None = None) -> float:
        """The score of a translation, for most models in [0, 1]."""
        if self.metric == "unified_metric":
            found: Tensor = self._unified(source, translation, reference)
        else:
            found = self.estimator(self._features(source, translation, reference or ""))
        return float(found)

    def _features(self, source: str, translation: str, reference: str) -> Tensor:
        mt, src = self._embedding(self._ids(translation)), self._embedding(self._ids(source))
        if self.metric == "referenceless_regression_metric":
            return torch.cat((mt, src, mt * src, (mt - src).abs()))
        ref = self._embedding(self._ids(reference))
        return torch.cat((mt, ref, mt * ref, (mt - ref).abs(), mt * src, (mt - src).abs()))

    def _unified(self, source: str, translation: str, reference: str | None) -> Tensor:
        given = {"src": source, "ref": reference}
        texts = [text for name in ("src", "ref") if name in self.inputs and (text := given[name]) is not None]
        mixed = len(texts) == 2
        read = [texts[:1], texts[1:], texts] if mixed else [texts]
        parts = [self.estimator(self._states(self._ids(translation, *own))[0]) for own in read]
        return sum((w * part for w, part in zip(SHARES, parts, strict=True)), torch.zeros(1)) if mixed else parts[0]

    def _ids(self, *texts: str) -> list[int]:
        """The texts as one sequence: <s> a </s></s> b </s>."""
        most = self._places
        begin, end = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        found: list[int] = []
        for number, text in enumerate(texts):
            for special in self.tokenizer.all_special_tokens:
                text = text[:LONGEST].replace(special, " ")
            own = self.tokenizer(text, add_special_tokens=False)["input_ids"][: most - 2]
            found += [end if number else begin, *own, end]
        return found[:most]

    @property
    def _places(self) -> int:
        """Tokens that the encoder reads; its first two places are for padding."""
        return int(self.encoder.config.max_position_embeddings) - 2

    def _embedding(self, ids: Sequence[int]) -> Tensor:
        states_LD, pool = self._states(ids), self.settings.get("pool", "avg")
        return states_LD.mean(0) if pool == "avg" else states_LD.amax(0) if pool == "max" else states_LD[0]

    def _states(self, ids: Sequence[int]) -> Tensor:
        """[L, D] of one layer, or mixed."""
        read = torch.tensor([list(ids)])
        every: Any = self.encoder(input_ids=read, attention_mask=torch.ones_like(read), output_hidden_states=True)
        layers: list[Tensor] = [states_BLD[0] for states_BLD in every.hidden_states]
        chosen = self._layer
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
    def _layer(self) -> str | int:
        name = "sent_layer" if self.metric == "unified_metric" else "layer"
        found: str | int = self.settings.get(name, "mix")
        return found

    def _load(self, folder: Path, layers: int) -> None:
        stored = _tensors(folder)
        wanted = {f"encoder.model.{name}": own for name, own in self.encoder.state_dict().items()}
        wanted |= {f"estimator.ff.{name}": own for name, own in self.estimator.state_dict().items()}
        if self._layer == "mix":
            wanted |= {f"layerwise_attention.scalar_parameters.{i}": self.mixture[i : i + 1] for i in range(layers)}
            wanted["layerwise_attention.gamma"] = self.gamma
        for name, own in wanted.items():
            if name.endswith(("position_ids", "token_type_ids")):
                continue
            if name not in stored:
                raise UserError(f"'{folder}': the checkpoint has no tensor '{name}'; is the encoder that of the model?")
            if stored[name].shape != own.shape:
                raise UserError(
                    f"'{folder}': tensor '{name}' has the shape {list(stored[name].shape)}, and the settings of the "
                    f"model and its encoder make it {list(own.shape)}"
                )
            own.data.copy_(stored[name])


def sparsemax(values: Tensor) -> Tensor:
    """[K] the nearest probabilities (Martins and Astudillo 2016)."""
    ordered = values.sort(descending=True).values
    sums, count = ordered.cumsum(0) - 1.0, torch.arange(1, len(values) + 1)
    kept = int((ordered * count > sums).sum())
    return (values - sums[kept - 1] / kept).clamp(min=0.0)


def _settings(folder: Path) -> Mapping[str, Any]:
    file = folder / "hparams.yaml"
    if not folder.is_dir() or not file.is_file():
        raise UserError(
            f"'{folder}' is no folder of a COMET model: it needs hparams.yaml, model.safetensors and encoder/, with "
            "config.json and the tokenizer of its encoder"
        )
    with guard(f"'{file}' is no YAML with the settings of a model"):
        found = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
        if not isinstance(found, Mapping):
            raise ValueError("no mapping")
    return {str(name): value for name, value in found.items()}


def _encoder(folder: Path, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """The tokenizer, and the encoder with random weights."""
    missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"'{folder}' has no {' and no '.join(missing)}; the checkpoint does not hold them: put those of "
            f"'{settings.get('pretrained_model')}' there, or name their folder as encoder=FOLDER"
        )
    try:
        from transformers import AutoConfig, AutoModel, AutoTokenizer
    except ImportError:
        raise UserError("the encoder of COMET is run by transformers; pip install 'posttrain[transformers]'") from None
    with guard(f"'{folder}' holds no encoder that transformers can read"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model = AutoModel.from_config(  # type: ignore[no-untyped-call]
            config, add_pooling_layer=False, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return tokenizer, model.float()


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
    safe, checkpoint = folder / "model.safetensors", folder / "checkpoints" / "model.ckpt"
    if safe.is_file():
        from safetensors.torch import load_file

        with guard(f"'{safe}' holds no tensors"):
            return load_file(safe)
    if not checkpoint.is_file():
        raise UserError(f"'{folder}' has no model.safetensors: the weights are missing")
    raise UserError(
        f"'{checkpoint}' can hold code, so it is not read; write its tensors as model.safetensors, where you trust it: "
        f"cd '{folder}' && {CONVERT}"
    )
