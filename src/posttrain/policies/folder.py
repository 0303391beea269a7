"""Models on disk: the ordinary Hugging Face folder, read and written without ``transformers``.

A folder has ``config.json``, weights in ``model.safetensors`` (or shards with an index), tokenizer files, and perhaps a
``generation_config.json``. What was read is written back as it was: a config that was not touched is the same bytes,
and a tensor that was not trained is the same bits.

Types. A folder's tensors have a stored type, a policy's weights a training type. When every weight fits the stored type
exactly (bfloat16 weights that were never trained, held in float32), weights are saved in the stored type; otherwise in
the training type, and the config's ``dtype`` is set to it.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from posttrain.component import nearest
from posttrain.components.shapes import VisionShape
from posttrain.errors import RunFailed, UserError
from posttrain.errors.foreign import check_file, file_in, guard, read_bytes, read_json, shown
from posttrain.models.hub import FETCHED
from posttrain.policies import _byte_tokenizer
from posttrain.policies._shape import VISION_ENTRY, Shape
from posttrain.policies.decoder import Decoder
from posttrain.policies.tokenizer import LARGEST, TOKENIZER_FILES

CARRIED_FILES = (*TOKENIZER_FILES, "generation_config.json")
BUNDLED = Path(__file__).parent / "bundled"
SINGLE_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
MODEL_FILES = frozenset({".safetensors", ".gguf", ".json", ".jinja", ".txt", ".model"})
"""Endings of the files that a model is read from."""
_COUNTS = re.compile(r"(n|num|(.*_)?num_.*|n_.*)_(layers?|blocks?|experts)|(.*_)?depth")
"""Settings of configs that are numbers of repeated modules."""
_FEW = 1000
"""This many modules are made in seconds, whatever the weights hold."""
_LARGEST_SETTING = 10**12
_LARGEST_NEW = 4 * 10**9
"""Parameters of a model that is made from nothing: with gradients and optimizer it takes 60 GB."""


@dataclass(frozen=True)
class Folder:
    """A model folder that was found to have a config and weights."""

    path: Path

    @cached_property
    def config_bytes(self) -> bytes:
        """The config as it is written."""
        return read_bytes(file_in(self.path, "config.json"))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config."""
        return read_json(file_in(self.path, "config.json"))

    @cached_property
    def carried(self) -> dict[str, bytes]:
        """Files of a model other than config and weights, by name."""
        there = [name for name in CARRIED_FILES if (self.path / name).exists()]
        return {name: read_bytes(file_in(self.path, name), LARGEST.get(name, LARGEST[""])) for name in there}

    @cached_property
    def shards(self) -> dict[str, list[str]]:
        """Tensor names by weight file. Raises `UserError` for an index that is no table of files in the folder."""
        if (self.path / SINGLE_FILE).is_file():
            with open_weights(file_in(self.path, SINGLE_FILE)) as file:
                return {SINGLE_FILE: list(file.keys())}
        index = file_in(self.path, INDEX_FILE)
        named = read_json(index).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(name, str) and name for name in named.values()):
            raise UserError(f"'{index}': weight_map is {shown(repr(named), 60)}; it gives a file name for each tensor")
        shards: dict[str, list[str]] = {}
        for tensor, file_name in named.items():
            shards.setdefault(file_name, []).append(tensor)
        return shards

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every stored tensor by name, from the headers of the weight files."""
        return {
            name: shape
            for file_name, names in self.shards.items()
            for name, shape in stored_shapes(self._weight_file(file_name), names).items()
        }

    def _weight_file(self, name: str) -> Path:
        """A weight file of the folder. Raises `UserError` where it is missing or not in the folder."""
        with guard(f"the weight file '{shown(self.path / name)}' cannot be opened"):
            if not (self.path / name).exists():
                raise UserError(
                    f"the weight file '{shown(self.path / name)}' is missing, though the index names it; the folder "
                    "is incomplete"
                )
        return file_in(self.path, name)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every stored tensor by name, one at a time."""
        stored = self.shapes
        for file_name, names in self.shards.items():
            path = self._weight_file(file_name)
            with open_weights(path) as file:
                for name in names:
                    assert name in stored, "the headers were read"
                    with guard(f"'{path}': tensor '{shown(name, 100)}' cannot be read"):
                        tensor = file.get_tensor(name)
                    yield name, tensor

    def check_counts(self) -> None:
        """Raise `UserError` where the config repeats a module more often than there are stored tensors.

        A library that makes the modules first would take hours and all memory for a config of a few bytes.
        """
        rows = max((size for shape in self.shapes.values() for size in shape), default=0)
        for place, value in _leaves(self.config):
            name = place.rpartition(".")[2]
            if isinstance(value, bool) or not isinstance(value, int):
                continue
            repeated = _COUNTS.fullmatch(name) is not None
            most = max(_FEW, len(self.shapes), rows * ("expert" in name)) if repeated else _LARGEST_SETTING
            if value > most:
                raise UserError(
                    f"'{self.path / 'config.json'}': {shown(place, 100)} is {shown(value, 40)}, but the weights hold "
                    f"{len(self.shapes)} tensors, the longest of {rows:,} rows; config and weights do not belong "
                    "together"
                )


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The parts of a policy's source folder that are needed to write a model folder again."""

    source: str
    """Absolute path."""
    config: bytes
    stored: Mapping[str, torch.dtype]
    """Type by name, of every tensor that a folder of this model holds."""
    carried: Mapping[str, bytes]
    """Files that are written back as they were, by name."""


def open_folder(path: Path) -> Folder:
    """Check that a folder holds a model. Raises `UserError` with the missing files and the remedy."""
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "does not exist"
        raise UserError(f"the model folder '{path}' {what}; {_siblings(path)}")
    if not (path / "config.json").is_file():
        raise UserError(f"'{path}' has no config.json, so it is not a model folder; it holds: {_listing(path)}")
    if not (path / SINGLE_FILE).is_file() and not (path / INDEX_FILE).is_file():
        pickled = sorted(p.name for pattern in ("*.bin", "*.pt", "*.pth") for p in path.glob(pattern))
        if pickled:
            raise UserError(
                f"'{path}' has its weights in {pickled[0]}, a pickle: loading one runs whatever code is in it, so it "
                "is refused. Convert it where you trust it: from_pretrained(...).save_pretrained(...) of transformers "
                "writes model.safetensors"
            )
        raise UserError(f"'{path}' has no weights ({SINGLE_FILE} or {INDEX_FILE}); it holds: {_listing(path)}")
    check_files(path)
    return Folder(path)


def check_files(path: Path) -> None:
    """Raise `UserError` for a file of a model that is not regular, is too large, or is a link out of the folder."""
    with guard(f"'{path}' cannot be listed"):
        found = sorted(file for file in path.iterdir() if file.suffix in MODEL_FILES)
    for file in found:
        if file.is_dir():
            continue
        holds_weights = file.suffix in (".safetensors", ".gguf")
        check_file(file_in(path, file.name), None if holds_weights else LARGEST.get(file.name, LARGEST[""]))


def stored_shapes(path: Path, names: Iterable[str] | None = None) -> dict[str, tuple[int, ...]]:
    """Shapes by name from the header of a weight file, nothing else of which is read.

    Raises `UserError` for a file that lacks one of the names, and for tensors that are no real numbers: of complex ones
    the imaginary part would be lost, and whole numbers are codes of a quantization that is not done here.
    """
    found: dict[str, tuple[int, ...]] = {}
    with open_weights(path) as file:
        held = set(file.keys())
        for name in sorted(held) if names is None else names:
            if name not in held:
                raise UserError(f"'{path}' lacks the tensor '{shown(name, 100)}' that the index promises")
            with guard(f"'{path}': tensor '{shown(name, 100)}'"):
                part = file.get_slice(name)
                shape, kind = part.get_shape(), str(part.get_dtype())
            if kind.startswith("C"):
                raise UserError(
                    f"'{path}': tensor '{shown(name, 100)}' holds complex numbers ({kind}), and weights are real: "
                    "the imaginary part would be lost"
                )
            found[name] = tuple(shape)
    return found


def is_finite(tensor: Tensor) -> bool:
    """Whether no value is NaN or infinite: one pass without a copy, some 25 GB a second on one core."""
    return tensor.numel() == 0 or bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())


def _leaves(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a config with its dotted place."""
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list) else None
    if items is None:
        yield above, tree
        return
    for name, value in items:
        yield from _leaves(value, f"{above}.{name}" if above else str(name))


def bundled(name: str) -> Path:
    """The folder of a model that ships with the package."""
    names = bundled_names()
    if name not in names:
        raise UserError(f"no bundled model '{name}'; {nearest(name, names)}")
    return BUNDLED / name


def bundled_names() -> list[str]:
    """Names of the models that ship with the package."""
    return sorted(path.parent.name for path in BUNDLED.glob("*/config.json"))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, with the permissions that any new file gets."""
    own = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(own, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise RunFailed(f"the weights could not be written to '{path}': {error}") from None
    path.chmod(mode)  # The library makes a private file and moves it here.


def write_folder(
    path: Path,
    tensors: Mapping[str, Tensor],
    origin: Origin,
    *,
    write: Callable[[Path, Mapping[str, Tensor]], None] = write_tensors,
) -> None:
    """Write a model folder, made if needed."""
    kept = _in_stored_types(tensors, origin.stored)
    path.mkdir(parents=True, exist_ok=True)
    write(path / SINGLE_FILE, kept or tensors)
    (path / INDEX_FILE).unlink(missing_ok=True)
    (path / "config.json").write_bytes(origin.config if kept else _with_dtype(origin.config, tensors))
    for name, content in origin.carried.items():
        (path / name).write_bytes(content)


def check_context(context: int | None, limit: int) -> int:
    """The longest sequence: the model's limit, or less if the recipe sets it."""
    if context is not None and context > limit:
        raise UserError(f"context is {context} tokens, but the model is made for {limit}; give at most that")
    return context or limit


def new_folder(
    path: Path,
    *,
    architecture: Literal["qwen3", "llama"] = "qwen3",
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    mlp_width: int | None = None,
    context: int = 512,
    tied: bool = True,
    seed: int = 0,
    words: Sequence[str] = (),
    vision: VisionShape | None = None,
) -> Path:
    """Make a randomly initialised decoder in float32 with the byte-level tokenizer.

    Linear weights are normal with standard deviation 1 / sqrt(inputs), those that write to the residual stream smaller
    by sqrt(2 layers) (Radford et al. 2019, GPT-2); embeddings, those of patches too, have 0.02, norms are one.
    """
    path.mkdir(parents=True, exist_ok=True)
    tokens = _byte_tokenizer.write_byte_tokenizer(path, words=words, sees=vision is not None)
    config: dict[str, Any] = {
        "architectures": ["Qwen3ForCausalLM" if architecture == "qwen3" else "LlamaForCausalLM"],
        "model_type": architecture,
        "vocab_size": tokens,
        "hidden_size": width,
        "intermediate_size": mlp_width or 3 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads or heads,
        "head_dim": head_dim or width // heads,
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": tied,
        "initializer_range": 0.02,
        "bos_token_id": None,
        "eos_token_id": _byte_tokenizer.END_TOKEN_ID,
        "pad_token_id": _byte_tokenizer.PAD_TOKEN_ID,
        "dtype": "float32",
    }
    if vision is not None:
        sees = {"patch_size": vision.patch, "image_size": vision.size, "image_token_id": tokens - 1}
        config |= {"architectures": ["PosttrainVisionLanguageModel"], VISION_ENTRY: sees}
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    generation = {"eos_token_id": _byte_tokenizer.END_TOKEN_ID, "pad_token_id": _byte_tokenizer.PAD_TOKEN_ID}
    (path / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
    write_tensors(path / SINGLE_FILE, _random_weights(Shape.from_config(config), seed))
    return path


def _random_weights(shape: Shape, seed: int) -> dict[str, Tensor]:
    """Initial tensors of a decoder, by name."""
    with torch.device("meta"):
        wanted = Decoder(shape).state_dict()
    if (parameters := sum(like.numel() for like in wanted.values())) > _LARGEST_NEW:
        raise UserError(
            f"a new model of this shape has {parameters:,} parameters, and at most {_LARGEST_NEW:,} are made; take "
            "fewer layers or a smaller width"
        )
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, like in wanted.items():
        if like.dim() == 1:
            tensors[name] = torch.ones(like.shape)
            continue
        std = 0.02 if any(part in name for part in ("embed", "lm_head", "patch")) else like.shape[1] ** -0.5
        if "vision.place" in name:
            std = 0.05  # so that the position of a patch has about as much weight as its pixels
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            std /= (2 * shape.layers) ** 0.5
        tensors[name] = torch.randn(like.shape, generator=generator) * std
    return tensors


def _in_stored_types(tensors: Mapping[str, Tensor], stored: Mapping[str, torch.dtype]) -> dict[str, Tensor] | None:
    """The tensors in the types that they are stored in; None when a value would be lost by it."""
    converted = {}
    for name, tensor in tensors.items():
        converted[name] = tensor.detach().to(stored.get(name, tensor.dtype))
        if not torch.equal(converted[name].to(tensor.dtype), tensor.detach()):
            return None
    return converted


def _with_dtype(config: bytes, tensors: Mapping[str, Tensor]) -> bytes:
    """The config with the type that the tensors have now, so that others load them in it."""
    settings = json.loads(config)
    key = "torch_dtype" if "torch_dtype" in settings else "dtype"
    settings[key] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()


@contextmanager
def open_weights(path: Path) -> Iterator[Any]:
    """An open safetensors file. Raises `UserError` for one that is broken."""
    size = check_file(path)
    with guard(f"'{path}' ({size} bytes) is damaged or cut short. Copy or download it again"):
        opened = safe_open(path, framework="pt")
    with opened as file:
        yield file


def _siblings(path: Path) -> str:
    """What else could have been meant by a folder that is not there."""
    parent = path.parent
    for name, place in FETCHED.items():
        if str(path) in (name, place):
            return f"posttrain fetch {name} downloads it to {place}"
    if not parent.is_dir():
        where = f"'{parent}' does not exist either (working in {Path.cwd()})"
        return f"{where}; a model of the Hugging Face hub is named owner/name"
    names = {p.name for p in parent.iterdir() if (p / "config.json").is_file()} | set(bundled_names())
    if not names:
        return f"there are no model folders in {parent.resolve()}, and no bundled models"
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    if near:
        return f"did you mean '{near[0] if near[0] in bundled_names() else parent / near[0]}'?"
    others = sorted(names - set(bundled_names()))
    there = f"model folders in {parent.resolve()}: {_first(others)}; " if others else ""
    return f"{there}bundled: {', '.join(bundled_names())}"


def _listing(path: Path) -> str:
    """Names of the first few files."""
    return _first(sorted(p.name for p in path.iterdir())) or "nothing"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
