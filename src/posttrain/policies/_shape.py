"""The architecture of a Llama-, Qwen2- or Qwen3-like decoder, from its ``config.json``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posttrain.errors import UserError
from posttrain.errors.foreign import guard

NATIVE_TYPES = ("llama", "qwen2", "qwen3")
ROPE_SETTINGS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": (),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": (),
}
"""The kinds of position scaling that are done natively, with the settings that they cannot do without."""

_MOST = {
    "vocab_size": 10**8,
    "hidden_size": 10**7,
    "num_hidden_layers": 10**4,
    "num_attention_heads": 10**5,
    "num_key_value_heads": 10**5,
    "head_dim": 10**5,
    "intermediate_size": 10**8,
    "max_position_embeddings": 10**9,
}
"""Sizes that a config may give, far above those of any model: more is a damaged or a hostile file."""
_OPTIONAL = ("num_key_value_heads", "head_dim", "max_position_embeddings")
_ROPE_NUMBERS = (
    "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "beta_fast", "beta_slow",
    "attention_factor",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary position embedding: the rotation speed of each pair of dimensions. Su et al. 2021, arXiv:2104.09864."""

    type: str
    theta: float
    settings: Mapping[str, Any]
    """The rest of ``rope_parameters`` (``rope_scaling`` in older configs)."""

    def frequencies(self, head_dim: int, context: int) -> tuple[Tensor, float]:
        """[head_dim / 2] radians per position in float32, and the factor that scales cosine and sine."""
        exponent = torch.arange(0, head_dim, 2, device="cpu").float() / head_dim
        plain: Tensor = 1.0 / (self.theta**exponent)
        if self.type == "linear":
            interpolated: Tensor = plain / float(self.settings["factor"])
            return interpolated, 1.0
        if self.type == "llama3":
            return self._llama3(plain, context), 1.0
        if self.type == "yarn":
            return self._yarn(plain, head_dim, context)
        # Dynamic NTK equals the default up to the model's own context, which is as long as a sequence gets here.
        return plain, 1.0

    def _llama3(self, plain: Tensor, context: int) -> Tensor:
        """Slow rotations divided by the factor, fast ones kept, those between interpolated (Llama 3.1)."""
        original = self.settings.get("original_max_position_embeddings", context)
        low, high = self.settings["low_freq_factor"], self.settings["high_freq_factor"]
        turns = original * plain / (2 * math.pi)
        keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
        scaled: Tensor = (1 - keep) * plain / float(self.settings["factor"]) + keep * plain
        return scaled

    def _yarn(self, plain: Tensor, head_dim: int, context: int) -> tuple[Tensor, float]:
        """YaRN, Peng et al. 2023, arXiv:2309.00071, section 3.2 (a ramp over dimensions) and 3.4 (temperature)."""
        original = self.settings.get("original_max_position_embeddings", context)
        factor = self.settings.get("factor") or context / original

        def dimension(rotations: float) -> float:
            return head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(self.theta))

        low, high = dimension(self.settings.get("beta_fast") or 32), dimension(self.settings.get("beta_slow") or 1)
        if self.settings.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_dim - 1)
        ramp = (torch.arange(head_dim // 2, device="cpu").float() - low) / max(high - low, 0.001)
        keep = 1 - ramp.clamp(0.0, 1.0)
        return plain / factor * (1 - keep) + plain * keep, self._yarn_scale(factor)

    def _yarn_scale(self, factor: float) -> float:
        def scale(weight: float) -> float:
            return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

        given, one, all_dims = (self.settings.get(k) for k in ("attention_factor", "mscale", "mscale_all_dim"))
        if given is not None:
            return float(given)
        return scale(one) / scale(all_dims) if one and all_dims else scale(1.0)


@dataclass(frozen=True, kw_only=True)
class Vision:
    """Image inputs of a decoder: one token per patch, whose vector has the patch's pixels."""

    patch: int
    """Pixels on each side of a patch."""
    size: int
    """Pixels on the longest side of an image."""
    token_id: int
    """The token of every patch."""

    @property
    def pixels(self) -> int:
        """Numbers of a patch: red, green and blue of each pixel."""
        return 3 * self.patch**2

    @property
    def grid(self) -> int:
        """Patches on the longest side."""
        return -(-self.size // self.patch)

    @property
    def vector_width(self) -> int:
        """Numbers in a vector: those of the patch, then its row and its column, one-hot."""
        return self.pixels + 2 * self.grid

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Vision | None":
        """Read the entry that `posttrain.policies.folder.new_folder` writes; None where there is none."""
        given = config.get(VISION_ENTRY)
        if given is None:
            return None
        most = {"patch_size": 1024, "image_size": 16_384, "image_token_id": config["vocab_size"] - 1}
        for name, largest in most.items():
            value = given.get(name) if isinstance(given, Mapping) else None
            least = int(name != "image_token_id")
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= largest:
                raise UserError(
                    f"config.json: {name} of {VISION_ENTRY} is {_shown(value)}; it is a whole number from {least} to "
                    f"{largest:,}"
                )
        return cls(patch=given["patch_size"], size=given["image_size"], token_id=given["image_token_id"])


VISION_ENTRY = "posttrain_vision"
"""Name of a config's entry for image inputs. No other program has it."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes and switches of a decoder."""

    model_type: str
    vocabulary_size: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int
    norm_eps: float
    context: int
    rope: Rope
    tied: bool
    """Whether the output projection is the embedding."""
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    vision: Vision | None = None
    """How it sees images; None for text only."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Shape":
        """Read a config. Raises `UserError` for what the native decoder does not do."""
        reason = not_native(config)
        if reason:
            raise UserError(f"the native decoder cannot run this model: {reason}; the transformers body can")
        _check_numbers(config)
        kind = config["model_type"]
        width, heads = config["hidden_size"], config["num_attention_heads"]
        bias = bool(config.get("attention_bias", False))
        return cls(
            model_type=kind,
            vocabulary_size=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or (128 if kind == "qwen3" else width // heads),
            mlp_width=config["intermediate_size"],
            norm_eps=config.get("rms_norm_eps", 1e-6),
            context=config.get("max_position_embeddings") or (2048 if kind == "llama" else 32768),
            rope=_rope(config),
            tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=kind == "qwen2" or bias,
            o_bias=kind != "qwen2" and bias,
            mlp_bias=kind == "llama" and bool(config.get("mlp_bias", False)),
            qk_norm=kind == "qwen3",
            vision=Vision.from_config(config),
        )


def _check_numbers(config: Mapping[str, Any]) -> None:
    """Raise `UserError` for sizes that no model has, before anything is made of them."""
    for key, most in _MOST.items():
        value = config.get(key)
        if value is None and key in _OPTIONAL:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise UserError(f"config.json: {key} is {_shown(value)}; it is a whole number from 1 to {most:,}")
    eps = config.get("rms_norm_eps", 1e-6)
    if isinstance(eps, bool) or not isinstance(eps, float | int) or not 0 <= eps < 1:
        raise UserError(f"config.json: rms_norm_eps is {_shown(eps)}; it is a number from 0 to 1")
    width, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    if heads % kv_heads:
        raise UserError(
            f"config.json: num_attention_heads is {heads} and num_key_value_heads {kv_heads}; it must be a multiple"
        )
    head_dim = config.get("head_dim") or (128 if config["model_type"] == "qwen3" else width // heads)
    if head_dim < 2 or head_dim % 2:
        raise UserError(f"config.json: heads have {head_dim} dimensions; positions are rotated in pairs of them")
    rope = _rope(config)
    odd = [key for key, value in rope.settings.items() if key in _ROPE_NUMBERS and not _is_positive(value)]
    if odd:
        raise UserError(f"config.json: {odd[0]} of the rope settings is {_shown(rope.settings[odd[0]])}, not above 0")
    if not _is_positive(rope.theta):
        raise UserError(f"config.json: rope_theta is {rope.theta:g}; it is a number above 0")
    context = config.get("max_position_embeddings") or (2048 if config["model_type"] == "llama" else 32768)
    with guard(f"config.json: the rope settings {_shown(dict(rope.settings))} give no frequencies"):
        frequencies, scale = rope.frequencies(head_dim, context)
    if not frequencies.isfinite().all() or not 0 < scale < 1e30:
        raise UserError(f"config.json: the rope settings {_shown(dict(rope.settings))} give frequencies out of range")


def _is_positive(value: object) -> bool:
    """Whether it is a finite number above 0."""
    return isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < 1e30


def _shown(value: object) -> str:
    """A value as a message can hold it."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "an enormous number"
    return text if len(text) <= 60 else text[:60] + "..."


def not_native(config: Mapping[str, Any]) -> str | None:
    """Why the native decoder does not do this model; None when it does."""
    kind = config.get("model_type")
    if kind not in NATIVE_TYPES:
        return f"model_type is {kind!r} (native: {', '.join(NATIVE_TYPES)})"
    missing = [
        k
        for k in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        if k not in config
    ]
    if missing:
        return f"its config.json does not give {', '.join(missing)}"
    if config.get("hidden_act", "silu") != "silu":
        return f"hidden_act is {config['hidden_act']!r} (native: 'silu')"
    if _uses_sliding_window(config):
        return f"it uses a sliding attention window of {config.get('sliding_window')} tokens"
    rope = _rope(config)
    if rope.type not in ROPE_SETTINGS:
        return f"its rope type is {rope.type!r} (native: {', '.join(ROPE_SETTINGS)})"
    lacking = [key for key in ROPE_SETTINGS[rope.type] if key not in rope.settings]
    if lacking:
        return f"its rope settings lack {', '.join(lacking)}"
    if rope.settings.get("partial_rotary_factor", 1.0) != 1.0:
        return f"it rotates only {rope.settings['partial_rotary_factor']} of each head"
    return None


def _uses_sliding_window(config: Mapping[str, Any]) -> bool:
    """Whether some layer's window is truly limited (Qwen configs carry a window that is usually switched off)."""
    layer_types = config.get("layer_types")
    if layer_types is not None:
        if not isinstance(layer_types, list):
            raise UserError(f"config.json: layer_types is {_shown(layer_types)}; it is a list, a name a layer")
        return any(kind != "full_attention" for kind in layer_types)
    switched_on = config.get("use_sliding_window", False) and config.get("sliding_window") is not None
    return bool(switched_on and _window_start(config) < config["num_hidden_layers"])


def _window_start(config: Mapping[str, Any]) -> int:
    """The first layer with a sliding window."""
    start = config.get("max_window_layers", 28)
    if isinstance(start, bool) or not isinstance(start, int):
        raise UserError(f"config.json: max_window_layers is {_shown(start)}; it is a number of layers")
    return start


def _rope(config: Mapping[str, Any]) -> Rope:
    """Rope settings from ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling`` (before)."""
    given = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(given, Mapping):
        raise UserError(f"config.json: its rope settings are {_shown(given)}; they are an object with named values")
    settings = dict(given)
    legacy = settings.pop("type", "default")
    kind = settings.pop("rope_type", legacy)
    theta = settings.pop("rope_theta", None) or config.get("rope_theta") or 10_000.0
    if "partial_rotary_factor" in config:
        settings.setdefault("partial_rotary_factor", config["partial_rotary_factor"])
    if "original_max_position_embeddings" in config:
        settings["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    if isinstance(theta, bool) or not isinstance(theta, float | int):
        raise UserError(f"config.json: rope_theta is {_shown(theta)}; it is a number above 0")
    return Rope(type=str(kind), theta=float(min(theta, 1e30)), settings=settings)


def kept_numbers(*, width: int, heads: int, kv_heads: int, mlp_width: int, normed: bool) -> int:
    """Numbers that a layer keeps of a token for the backward pass; `normed` where heads have norms."""
    return 2 * width + (2 + normed) * heads + (2 + normed) * kv_heads + 2 * mlp_width
