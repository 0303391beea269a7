"""Low-rank adapters: every chosen projection W gets a trained update, W + (alpha / rank) B A.

Hu et al. 2021, arXiv:2106.09685, section 4. A starts Kaiming-uniform, B at zero, so that nothing changes at first. The
files are those of ``peft``: ``adapter_config.json`` and ``adapter_model.safetensors``.
"""

import json
import math
import zlib
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.models import LoRA
from posttrain.policies.folder import write_tensors
from posttrain.policies.tokenizer import read_json

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What peft puts before the names of a model's modules."""
UNSUPPORTED = ("use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias")
"""Settings of peft that change what an adapter computes, and that are not done here."""


class LoRALinear(nn.Linear):
    """A frozen linear layer with a trained low-rank update; its weight and bias keep their names."""

    def __init__(self, base: nn.Linear, name: str, rank: int, alpha: float) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.scale = alpha / rank
        # Seeded by the layer's name: the same adapter in every run, and a different one in every layer.
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        bound = math.sqrt(1 / base.in_features)
        down = (torch.rand(rank, base.in_features, generator=generator) * 2 - 1) * bound
        self.lora_A = nn.Parameter(down.to(base.weight))
        self.lora_B = nn.Parameter(base.weight.new_zeros(base.out_features, rank))

    def forward(self, input: Tensor) -> Tensor:
        """[R, out] from [R, in]."""
        update = F.linear(F.linear(input, self.lora_A), self.lora_B)
        return F.linear(input, self.weight, self.bias) + self.scale * update

    def merged(self) -> Tensor:
        """The weight of the plain layer that computes the same."""
        update = self.lora_B.double() @ self.lora_A.double()
        return (self.weight.double() + self.scale * update).to(self.weight.dtype)


def add_adapters(root: nn.Module, lora: LoRA) -> None:
    """Freeze a model and put adapters on its target projections. Raises `UserError` for a target it does not have."""
    linears = {name: m for name, m in root.named_modules() if isinstance(m, nn.Linear)}
    last_names = {name.rpartition(".")[2] for name in linears}
    for target in lora.targets:
        if target not in last_names:
            raise UserError(f"lora.targets: the model has no linear layer '{target}'; {nearest(target, last_names)}")
    root.requires_grad_(False)
    for name, linear in linears.items():
        if name.rpartition(".")[2] in lora.targets:
            root.set_submodule(name, LoRALinear(linear, name, lora.rank, lora.alpha))


def adapters(root: nn.Module) -> dict[str, LoRALinear]:
    """The adapted layers by name."""
    return {name: module for name, module in root.named_modules() if isinstance(module, LoRALinear)}


def merge_adapters(root: nn.Module) -> None:
    """Replace adapted layers by plain ones that compute the same."""
    for name, layer in adapters(root).items():
        plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        plain.weight, plain.bias = nn.Parameter(layer.merged().detach()), layer.bias
        root.set_submodule(name, plain)


def merged_state(root: nn.Module) -> dict[str, Tensor]:
    """The state dict of the plain model that computes the same."""
    layers = adapters(root)
    state = {}
    for name, tensor in root.state_dict().items():
        layer, _, last = name.rpartition(".")
        if layer in layers and last != "bias":
            if last == "weight":
                state[name] = layers[layer].merged().detach()
            continue
        state[name] = tensor
    return state


def save_adapter(folder: Path, root: nn.Module, lora: LoRA, base: str) -> None:
    """Write a model's adapters for ``peft``; `base` is the folder of the model that they belong to."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "target_modules": list(lora.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    (folder / CONFIG_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    write_tensors(folder / WEIGHTS_FILE, _tensors(root))


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, and not a whole model."""
    return (folder / CONFIG_FILE).is_file() and not (folder / "config.json").is_file()


def base_of(folder: Path) -> Path:
    """Folder of the model that an adapter is made for, as it is written or beside the adapter.

    Raises `UserError` where none is named.
    """
    base = read_json(folder / CONFIG_FILE).get("base_model_name_or_path")
    if not base:
        raise UserError(f"'{folder / CONFIG_FILE}' names no base_model_name_or_path, so its model cannot be found")
    return Path(base) if Path(base).is_dir() else folder / base


def read_adapter(folder: Path) -> LoRA:
    """Settings of a ``peft`` adapter. Raises `UserError` for what is not a plain LoRA."""
    settings = read_json(folder / CONFIG_FILE)
    odd = [key for key in UNSUPPORTED if settings.get(key)]
    if settings.get("peft_type") != "LORA" or settings.get("bias", "none") != "none" or odd:
        what = ", ".join(odd) or f"peft_type {settings.get('peft_type')}, bias {settings.get('bias')}"
        raise UserError(f"the adapter '{folder}' is not a plain LoRA ({what}); merge it into its model with peft first")
    names = {name.removeprefix(PREFIX).split(".lora_")[0] for name in _read_tensors(folder)}
    targets = tuple(sorted({name.rpartition(".")[2] for name in names}))
    return LoRA(rank=settings["r"], alpha=settings["lora_alpha"], targets=targets)


def load_adapter(folder: Path, root: nn.Module) -> None:
    """Give a model's adapters the stored values. Raises `UserError` for tensors that do not fit."""
    stored, own = _read_tensors(folder), _tensors(root)
    for name in sorted(own.keys() ^ stored.keys()):
        raise UserError(f"adapter '{folder}': tensor '{name}' is {'missing' if name in own else 'not of this model'}")
    for name, tensor in own.items():
        if tensor.shape != stored[name].shape:
            got, needed = list(stored[name].shape), list(tensor.shape)
            raise UserError(f"adapter '{folder}': tensor '{name}' is {got}, the model needs {needed}")
        with torch.no_grad():
            tensor.copy_(stored[name])


def _tensors(root: nn.Module) -> dict[str, Tensor]:
    """The adapters' parameters by the names that peft gives them."""
    return {
        f"{PREFIX}{name}.{part}.weight": tensor.detach()
        for name, layer in adapters(root).items()
        for part, tensor in (("lora_A", layer.lora_A), ("lora_B", layer.lora_B))
    }


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of an adapter's file."""
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise UserError(
            f"the adapter '{folder}' has no {WEIGHTS_FILE} (pickled .bin adapters are refused: they run code)"
        )
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"'{path}' is damaged or cut short: {error}") from None
