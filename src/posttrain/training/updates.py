"""What an optimizer updates: some weights with their masters, mask and moments.

Those of a whole policy, or, where several processes learn together, those that one of them updates. Every weight is
whole, so that norms, orthogonal updates and masks are those of one process.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from posttrain.components.optimizers import Updates
from posttrain.training.masking import WeightMask
from posttrain.training.masters import Masters
from posttrain.training.offloading import Files
from posttrain.training.settings import Learning

MASTER: Final = "master"
"""Name of a master among the saved tensors of a parameter, next to those of optimizers."""


class Weights:
    """Trained weights, by name, and all that updates them."""

    def __init__(
        self,
        weights: Mapping[str, nn.Parameter],
        settings: Learning,
        others: Mapping[str, Mapping[str, Tensor]] | None = None,
    ) -> None:
        """`others` are the parameters of models that the optimizer reads, by role and name."""
        self.settings = settings
        self.masters = Masters(weights, kept=settings.master_weights)
        self.parameters = self.masters.parameters
        self.mask = WeightMask(settings.mask, self.parameters) if settings.mask is not None else None
        self.optimizers: list[Updates] = settings.optimizer.build(self.parameters, others or {})
        self.files = Files(settings.offload) if settings.offload is not None else None
        self.peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]

    @torch.no_grad()
    def norms(self) -> dict[str, Tensor]:
        """The norm of each gradient that there is, after the mask."""
        if self.mask is not None:
            self.mask.gradients()
        found = {name: p.grad for name, p in self.parameters.items() if p.grad is not None}
        return dict(zip(found, torch._foreach_norm(list(found.values())), strict=True)) if found else {}

    def update(self, norm: Tensor, factor: float) -> None:
        """One step, with gradients clipped by the norm of all and rates of `factor` times their peaks."""
        bound = self.settings.clip_norm
        if bound is not None and float(bound / (norm + 1e-6)) < 1.0:  # torch multiplies by 1 below the bound
            torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), bound, norm)
        for optimizer, peaks in zip(self.optimizers, self.peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * factor
            optimizer.step()
        self.drop()
        if self.mask is not None:
            self.mask.weights()
        self.masters.publish()
        self._put_away()

    @torch.no_grad()
    def _put_away(self) -> None:
        """Bring moments and masters to files, where that is wanted."""
        if self.files is None:
            return
        kept = []
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                for key, value in state.items():
                    if isinstance(value, Tensor):
                        state[key] = self.files.moved(value)
                        kept.append(state[key])
        for master in self.masters.own.values():
            master.data = self.files.moved(master.data)
            kept.append(master.data)
        self.files.rest(kept)

    def drop(self) -> None:
        """Forget the gradient."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def gradients(self) -> dict[str, Tensor]:
        """A copy of the gradient, zeros where there is none; it is forgotten."""
        found = {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in self.parameters.items()}
        self.drop()
        return found

    def state(self) -> dict[str, Tensor]:
        """Moments and masters by name; not copied."""
        tensors = {}
        for name, parameter in self.parameters.items():
            for optimizer in self.optimizers:
                for key, value in optimizer.state.get(parameter, {}).items():
                    tensors[f"{name}|{key}"] = torch.as_tensor(value).detach().contiguous()
        return tensors | {f"{name}|{MASTER}": master.detach() for name, master in self.masters.own.items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned, exactly."""
        self.reset()
        self.masters.forget()
        owner = {id(p): o for o in self.optimizers for group in o.param_groups for p in group["params"]}
        for key, tensor in tensors.items():
            name, entry = key.rsplit("|", 1)
            parameter = self.parameters[name]
            if entry == MASTER:
                parameter.data.copy_(tensor)
                continue
            optimizer = owner[id(parameter)]
            # torch keeps the step counts of optimizers that are not fused on the CPU.
            on_cpu = entry == "step" and not optimizer.defaults.get("fused")
            optimizer.state[parameter][entry] = tensor.to("cpu" if on_cpu else parameter.device)

    def reset(self) -> None:
        """Forget the moments."""
        for optimizer in self.optimizers:
            optimizer.state.clear()

    def release(self) -> None:
        """Give up the memory of masters and mask, for a learner whose weights are updated elsewhere."""
        for master in self.masters.own.values():
            master.data = torch.empty(0, dtype=master.dtype)
        self.masters.own.clear()
        self.mask = None


def total_norm(norms: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients from those of each, in the order of the parameters."""
    if not norms:
        return torch.zeros(())
    norm: Tensor = torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]))
    return norm
