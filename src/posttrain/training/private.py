"""The learner of private training: DP-SGD with groups of parameters, a ledger and a controller.

Abadi et al. 2016, arXiv:1607.00133, algorithm 1, with groups: of every record's gradient, the part of each group g is
scaled by min(1, C_g / norm); the sum over a Poisson batch gets noise N(0, (sigma_g C_g)^2), and is divided by the
expected batch size. With n groups sigma_g = sigma sqrt(n), so that all of them together have the multiplier sigma. A
record with a gradient that is not finite counts as 0. An empty batch gets noise too.

What a controller reads is released from the same batch and counted: the shares of records within the bounds, as sums of
+-1/2 over records with noise `measured_noise` sqrt(n) / 2, and the loss, scaled to +-1/2, with noise `measured_noise` /
2. The expected batch size divides both.

The claim is about the model. The record of the run has losses and rollouts without noise, and is not to be published.
Noise is from torch's generator, which is not a cryptographic one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posttrain.components.controllers import Knobs, Measured
from posttrain.errors import UserError
from posttrain.policies import Policy
from posttrain.signals import Signal
from posttrain.statistics.privacy import Ledger, best_order, calibrated, joint
from posttrain.training.averages import Averages
from posttrain.training.gradients import Gradients, gradients_of
from posttrain.training.learner import Learned, Learner, Loss
from posttrain.training.packing import Example
from posttrain.training.privacy import Privacy
from posttrain.training.settings import Learning
from posttrain.types import FloatArray

CONTROLLER = "privacy"
"""Name of the private state among a learner's numbers."""


class PrivateLearner(Learner):
    """Updates one policy on Poisson batches, within a budget."""

    def __init__(
        self, policy: Policy, settings: Learning, *, seed: int, num_steps: int, records: int, batch: int
    ) -> None:
        """`batch` of `records` are expected in a batch. Raises `UserError` where no step keeps within the budget."""
        super().__init__(policy, settings, seed=seed, num_steps=num_steps)
        assert settings.privacy is not None
        self.privacy: Privacy = settings.privacy
        self.rate, self.expected = min(1.0, batch / records), batch
        self.groups = grouped(list(self.parameters), self.privacy.groups)
        noise = self.privacy.noise or self._calibrated(num_steps)
        self.first = Knobs(clips=[self.privacy.clip] * len(self.groups), noise=noise)
        reads = self.privacy.controller.reads
        order = best_order(self.rate, self._joint(noise), num_steps, self.privacy.delta) if reads else None
        self.ledger = Ledger(epsilon=self.privacy.epsilon, delta=self.privacy.delta, order=order)
        self.state_of_controller = self.privacy.controller.start(self.first, seed)
        self.interval: dict[str, Any] = {"within": [0.0] * len(self.groups), "loss": 0.0, "steps": 0, "before": 0.0}
        if not self.goes_on:
            raise UserError(
                f"epsilon {self.privacy.epsilon:g} with delta {self.privacy.delta:g} does not allow a single step with "
                f"a noise multiplier of {noise:.3g} and a batch of {batch} of {records} records; give a smaller batch, "
                "more noise, or a larger epsilon"
            )

    @property
    def goes_on(self) -> bool:
        """Whether the budget allows a further step with the present settings; nothing is drawn to find out."""
        return self.ledger.affords(self.rate, self._joint(self.knobs.noise))

    @property
    def knobs(self) -> Knobs:
        """The present settings, within their bounds."""
        chosen = self.privacy.controller.knobs(self.state_of_controller, self.first)
        (low, high), (least, most) = self.privacy.clip_bounds, self.privacy.noise_bounds
        if chosen is self.first:
            return chosen
        clips = [min(max(clip, low), high) for clip in chosen.clips]
        return Knobs(clips=clips, noise=min(max(chosen.noise, least), most))

    def step(self, examples: Sequence[Example], loss: Loss, *, progress: float, epochs: int | None = None) -> Learned:
        """One update. Raises `ValueError` before anything is computed for a step beyond the budget."""
        assert epochs in (None, 1), "a private batch has one update"
        knobs = self.knobs
        self.ledger.charge(self.rate, self._joint(knobs.noise))
        self.policy.give_back_memory()
        self.masters.follow()
        averages = Averages()
        own = [i for i, e in enumerate(examples) if e.num_trained]
        found = gradients_of(self, [examples[i] for i in own], loss, progress, averages)
        within_GN, dropped = self._apply(found, knobs)
        self.updates += 1
        self.policy.version += 1
        self._record(averages, found, knobs, dropped, len(own))
        if self.privacy.controller.reads:
            self._observe(within_GN, found.loss_N)
        self.policy.give_back_memory()
        seen: list[Mapping[Signal, FloatArray]] = [{} for _ in examples]
        for place, values in zip(own, found.signals, strict=True):
            seen[place] = values
        return Learned(metrics=averages.means(), signals=seen, untouched=own, computed_tokens=averages.computed_tokens)

    def _apply(self, found: Gradients, knobs: Knobs) -> tuple[Tensor, int]:
        """Clip, sum, add noise and update. Returns [G, N] whether each norm was within its bound, and the number of
        records whose gradient was not finite.
        """
        clips_G = torch.tensor(knobs.clips, dtype=torch.float64)
        norms_GN = found.norms(self.groups)
        sound_N = norms_GN.isfinite().all(0)
        factor_GN = (clips_G[:, None] / norms_GN.clamp_min(1e-30)).clamp_max(1.0)
        factor_GN = torch.where(sound_N, factor_GN, torch.zeros_like(factor_GN))
        sums = found.weighted(self.groups, factor_GN)
        generator = torch.Generator().manual_seed(int(self._rng(0).integers(2**62)))
        each = knobs.noise * math.sqrt(len(self.groups))
        for clip, names in zip(knobs.clips, self.groups, strict=True):
            for name in names:
                parameter = self.parameters[name]
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32) * (each * clip)
                total = sums[name] + noise.to(sums[name]) if name in sums else noise.to(parameter.device)
                parameter.grad = (total / self.expected).to(parameter.dtype)
        factor = self.settings.schedule.factor(self.updates / self.num_updates)
        for optimizer, peaks in zip(self.optimizers, self.peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * factor
            optimizer.step()
            optimizer.zero_grad()
        self.masters.publish()
        return (norms_GN <= clips_G[:, None]) & sound_N, int((~sound_N).sum())

    def _record(self, averages: Averages, found: Gradients, knobs: Knobs, dropped: int, batch: int) -> None:
        """The metrics of the step."""
        numbers = {
            "epsilon": self.ledger.value,
            "noise_multiplier": knobs.noise,
            "clip": sum(knobs.clips) / len(knobs.clips),
            "records": float(batch),
            "records_without_gradient": float(dropped),
        }
        sound = found.loss_N[np.isfinite(found.loss_N)]
        if len(sound):
            numbers["loss"] = float(sound.mean())
        for name, value in numbers.items():
            averages.add(name, torch.tensor([value]))

    def _observe(self, within_GN: Tensor, loss_N: FloatArray) -> None:
        """Release what the controller reads, and let it choose after the last step of an interval."""
        count, rng, most = len(self.groups), self._rng(1), self.privacy.largest_loss
        sums_G = (within_GN.double() - 0.5).sum(1).numpy()
        sums_G = sums_G + rng.normal(size=count) * self.privacy.measured_noise * math.sqrt(count) / 2
        scaled_N = np.clip(np.nan_to_num(loss_N.astype(np.float64), nan=most), 0.0, most) / most - 0.5
        total = scaled_N.sum() + rng.normal() * self.privacy.measured_noise / 2
        interval = self.interval
        interval["within"] = [a + float(b) for a, b in zip(interval["within"], sums_G, strict=True)]
        interval["loss"] += float(total)
        interval["steps"] += 1
        if interval["steps"] < self.privacy.controller.every:
            return
        expected, spent = interval["steps"] * self.expected, self.ledger.value / self.ledger.epsilon
        measured = Measured(
            within=[0.5 + sum_ / expected for sum_ in interval["within"]],
            loss=(0.5 + interval["loss"] / expected) * most,
            spent=spent,
            cost=spent - interval["before"],
        )
        self.state_of_controller = self.privacy.controller.observe(self.state_of_controller, measured)
        self.interval = {"within": [0.0] * count, "loss": 0.0, "steps": 0, "before": spent}

    def _joint(self, noise: float) -> float:
        """The multiplier of all releases of a step together."""
        if not self.privacy.controller.reads:
            return noise
        return joint([noise, self.privacy.measured_noise, self.privacy.measured_noise])

    def _calibrated(self, steps: int) -> float:
        """The noise with which `steps` steps keep within the budget, next to what the controller reads.

        Raises `UserError` where there is none.
        """
        total = calibrated(self.rate, steps, self.privacy.epsilon, self.privacy.delta)
        read = 2 * self.privacy.measured_noise**-2 if self.privacy.controller.reads else 0.0
        if total == math.inf or total**-2 <= read:
            what = ", with what the controller reads" if read and total < math.inf else ""
            raise UserError(
                f"epsilon {self.privacy.epsilon:g} cannot be kept over {steps} steps{what}; take fewer steps, a larger "
                "privacy.measured_noise, or a larger epsilon"
            )
        noise = 1.0 / math.sqrt(total**-2 - read)
        return min(max(noise, self.privacy.noise_bounds[0]), self.privacy.noise_bounds[1])

    def _rng(self, stream: int) -> np.random.Generator:
        """Draws of a step."""
        return np.random.Generator(np.random.Philox(key=[self.seed, (self.updates << 4) + stream + 1]))

    def state(self, *, copied: bool = True) -> tuple[dict[str, object], dict[str, Tensor]]:
        """The learner's state, with the ledger, the controller and its interval."""
        numbers, tensors = super().state(copied=copied)
        numbers[CONTROLLER] = {
            "spent": {str(order): spent for order, spent in self.ledger.spent.items()},
            "controller": self.state_of_controller,
            "interval": self.interval,
        }
        return numbers, tensors

    def load_state(self, numbers: Mapping[str, object], tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned, exactly."""
        super().load_state(numbers, tensors)
        own: Any = numbers[CONTROLLER]
        self.ledger.spent = {int(order): float(spent) for order, spent in own["spent"].items()}
        self.state_of_controller, self.interval = own["controller"], dict(own["interval"])


def grouped(names: Sequence[str], by: str) -> list[list[str]]:
    """Names of parameters that are clipped together, in their order."""
    if by == "one":
        return [list(names)]
    found: dict[str, list[str]] = {}
    for name in names:
        layer, _, last = name.rpartition(".")
        found.setdefault(layer if by == "pairs" and last in ("lora_A", "lora_B") else name, []).append(name)
    return list(found.values())
