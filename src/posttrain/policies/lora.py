"""Low-rank adapters: every chosen projection W gets a trained update, W + (alpha / rank) B A.

Hu et al. 2021, arXiv:2106.09685, section 4. A starts Kaiming-uniform, B at zero, so that nothing changes at first. The
files are those of ``peft``: ``adapter_config.json`` and ``adapter_model.safetensors``.
"""

import copy
import json
import math
import zlib
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.errors.foreign import file_in, guard, read_json, shown
from posttrain.kernels.layers import Adapted
from posttrain.models import LoRA, Model
from posttrain.models.sources import find_model
from posttrain.policies.folder import bundled, bundled_names, check_files, open_weights, stored_shapes, write_tensors

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""peft's prefix of the names of a model's modules."""
Module = TypeVar("Module", bound=nn.Module)
UNSUPPORTED = ("use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias")
"""Settings of peft that change what an adapter computes, and that are not done here."""


class LoRALinear(Adapted):
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
        if (keep := self.keep) is not None:
            output = F.linear(input, self.whole.to(self.weight.dtype), self.bias)
            output = output if output.requires_grad else output.requires_grad_()
            output.register_hook(lambda gradient: keep(input, gradient))  # type: ignore[no-untyped-call]
            return output
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
        root.set_submodule(name, _plain(layer, nn.Parameter(layer.merged().detach())))


def shared(body: Module, role: str, model: Model) -> Module:
    """A body of the same parameters as that of a role, without its adapters. Raises `UserError` for weights that the
    role trains, or has in another type than `model`.
    """
    frozen = [parameter for name, parameter in body.named_parameters() if ".lora_" not in name]
    if any(parameter.requires_grad for parameter in frozen):
        raise UserError(
            f"its weights are to be shared with the role '{role}', which trains them; give that role adapters "
            f"(models.{role}.lora={{}}), or leave shared out for a copy"
        )
    if any(parameter.dtype != getattr(torch, model.dtype) for parameter in frozen):
        raise UserError(
            f"dtype is {model.dtype}, but the weights of the role '{role}', which are shared, have another type; set "
            "the same for both"
        )
    made = copy.deepcopy(body, {id(parameter): parameter for parameter in frozen})
    for name, layer in adapters(made).items():
        made.set_submodule(name, _plain(layer, layer.weight))
    return made


def _plain(layer: LoRALinear, weight: Tensor) -> nn.Linear:
    """A layer of that weight, and the same bias."""
    plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
    plain.weight, plain.bias = weight, layer.bias
    return plain


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


def base_of(folder: Path, model: Model) -> Path:
    """Folder of an adapter's base model: the recipe's, else the one that it names inside its own folder.

    Raises `UserError` where neither does. An adapter may be a stranger's, and what it names would be read, merged and
    saved; so a folder elsewhere is used only if the user names it.
    """
    if model.base is not None:
        return bundled(model.base) if model.base in bundled_names() else find_model(model.base)
    place = folder / CONFIG_FILE
    base = read_json(place).get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise UserError(
            f"'{place}' names no base_model_name_or_path, so its model cannot be found; name it as the model's base: "
            "models.ROLE.base=FOLDER"
        )
    with guard(f"'{place}': base_model_name_or_path is {shown(repr(base), 100)}"):
        inside = (folder / base).resolve()
        if inside.is_dir() and inside.is_relative_to(folder.resolve()) and inside != folder.resolve():
            return inside
    raise UserError(
        f"the adapter '{folder}' is made for the model '{shown(base, 200)}', which is not in its folder. A file may "
        "not choose what else is read, so name the model yourself: models.ROLE.base=FOLDER"
    )


def read_adapter(folder: Path) -> LoRA:
    """Settings of a ``peft`` adapter. Raises `UserError` for what is not a plain LoRA."""
    check_files(folder)
    settings = read_json(folder / CONFIG_FILE)
    odd = [key for key in UNSUPPORTED if settings.get(key)]
    if settings.get("peft_type") != "LORA" or settings.get("bias", "none") != "none" or odd:
        what = ", ".join(odd) or f"peft_type {settings.get('peft_type')}, bias {settings.get('bias')}"
        raise UserError(
            f"the adapter '{folder}' is not a plain LoRA ({shown(what, 100)}); merge it into its model with peft first"
        )
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise UserError(f"'{folder / CONFIG_FILE}': r is {shown(repr(rank), 60)}; it is a whole number from 1")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < 1e30:
        raise UserError(f"'{folder / CONFIG_FILE}': lora_alpha is {shown(repr(alpha), 60)}; it is a number above 0")
    shapes = stored_shapes(_weights_of(folder))
    for name, shape in shapes.items():
        wide = len(shape) == 2 and shape["lora_B" in name] == rank
        if not wide:
            raise UserError(
                f"the adapter '{folder}' has r {shown(rank, 40)}, but its tensor '{shown(name, 150)}' is "
                f"{shown(list(shape), 60)}"
            )
    names = {name.removeprefix(PREFIX).split(".lora_")[0] for name in shapes}
    targets = tuple(sorted({name.rpartition(".")[2] for name in names}))
    return LoRA(rank=rank, alpha=alpha, targets=targets)


def check_adapter(folder: Path, root: nn.Module, lora: LoRA) -> None:
    """Raise `UserError` for stored tensors that do not fit a model, before anything of their size is made."""
    stored = stored_shapes(_weights_of(folder))
    wanted = {
        f"{PREFIX}{name}.{part}.weight": shape
        for name, module in root.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in lora.targets
        for part, shape in (("lora_A", (lora.rank, module.in_features)), ("lora_B", (module.out_features, lora.rank)))
    }
    for name in sorted(wanted.keys() ^ stored.keys()):
        what = "missing" if name in wanted else "not of this model"
        raise UserError(f"adapter '{folder}': tensor '{shown(name, 150)}' is {what}")
    for name, shape in wanted.items():
        if stored[name] != shape:
            raise UserError(
                f"adapter '{folder}': tensor '{name}' is {shown(list(stored[name]), 60)}, the model needs {list(shape)}"
            )


def load_adapter(folder: Path, root: nn.Module) -> None:
    """Give a model's adapters the stored values, which `check_adapter` found to fit."""
    path = _weights_of(folder)
    with open_weights(path) as file, torch.no_grad():
        for name, tensor in _tensors(root).items():
            with guard(f"'{path}': tensor '{name}' cannot be read"):
                tensor.copy_(file.get_tensor(name))


def _tensors(root: nn.Module) -> dict[str, Tensor]:
    """The adapters' parameters by peft's names."""
    return {
        f"{PREFIX}{name}.{part}.weight": tensor.detach()
        for name, layer in adapters(root).items()
        for part, tensor in (("lora_A", layer.lora_A), ("lora_B", layer.lora_B))
    }


def _weights_of(folder: Path) -> Path:
    """The file of an adapter's tensors."""
    if not (folder / WEIGHTS_FILE).is_file():
        raise UserError(
            f"the adapter '{folder}' has no {WEIGHTS_FILE} (pickled .bin adapters are refused: they run code)"
        )
    return file_in(folder, WEIGHTS_FILE)
