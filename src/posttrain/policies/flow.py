"""A flow in a role: a velocity field, the noise of its steps, and the exact density of the chains that they make.

A chain is a_0 ~ N(0, I), then a_{k+1} ~ N(mean, std^2) at the times k/K, with mean and std from the noise
(`posttrain.components.noises`); its log-density is the sum over all of these. Chains are tokens
(`posttrain.datasets.chains`), so that whatever learns from the log-probabilities of text learns from them. A draw,
noise e mixed with an end point x at the share t, has minus the matching error, -mean((v - (x - e))^2), in the place of
a log-probability: its gradient is that of flow matching.

Source: rectified flow, Liu et al. 2022, arXiv:2209.03003; chains of a flow as a policy: ReinFlow, Zhang et al. 2025,
arXiv:2505.22094; the pseudo log-probability: AWM, Xue et al. 2025, arXiv:2509.25050.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, cast

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from posttrain.components.noises import Noise
from posttrain.components.shapes import Shape
from posttrain.datasets import chains
from posttrain.errors import UserError
from posttrain.errors.foreign import guard, shown
from posttrain.models import Model
from posttrain.policies import Packed, Policy
from posttrain.policies.folder import SINGLE_FILE, Folder, Origin, write_folder, write_tensors
from posttrain.signals import ENTROPY, LOGP, NOISE, SCORE, VALUE, VELOCITY, Signal
from posttrain.types import FloatArray, Message, Segment, Task, Trajectory

MODEL_TYPE = "posttrain_flow"
FREQUENCIES = (1.0, 2.0, 4.0)
"""Frequencies of the sinusoidal time embedding, in half periods."""
DRAWS = 8
"""Draws for each demonstration."""
_LOG_2PI = math.log(2.0 * math.pi)
_MOST_STEPS = 10_000
"""Steps of a flow that is read: of all its sizes, the one that no weight shows."""


_SHAPE: TypeAdapter[Shape] = TypeAdapter(Shape)


class FlowShape(Protocol):
    """The shape of a flow; see `posttrain.components.shapes.flow` for the fields."""

    @property
    def dims(self) -> int: ...  # noqa: D102
    @property
    def condition(self) -> int: ...  # noqa: D102
    @property
    def steps(self) -> int: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def layers(self) -> int: ...  # noqa: D102
    @property
    def noise(self) -> Noise: ...  # noqa: D102
    @property
    def token(self) -> Literal["step", "chain"]: ...  # noqa: D102
    @property
    def per_number(self) -> bool: ...  # noqa: D102
    @property
    def bound(self) -> float | None: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102


class Numbers:
    """A flow's tokenizer: prompts and completions are points, written as numbers."""

    end_token_ids: tuple[int, ...] = ()

    def __init__(self, condition: int) -> None:
        self.condition = condition

    def read(self, prompt: str | Sequence[Message]) -> FloatArray:
        """The condition's numbers; empty for a flow without a condition, whose prompts only distinguish draws."""
        if not self.condition:
            return np.zeros(0, np.float32)
        if not isinstance(prompt, str):
            raise UserError("a flow takes prompts of numbers, not chat messages; give the condition as text")
        return chains.read_point(prompt, self.condition, "the prompt of a flow, its condition,")


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """Steps of chains, one a row: R in all."""

    token_R: Tensor
    """Which of the T tokens the step belongs to."""
    place_R: Tensor
    """Number of the step, 0 .. K-1."""
    before_RP: Tensor
    after_RP: Tensor


class FlowPolicy(Policy):
    """A flow; or, with a value head, a critic of the flow's condition; or, with a reward head, a reward model of the
    end point, its squares and the condition.
    """

    GIVES: ClassVar[Mapping[str, frozenset[Signal]]] = {
        "language": frozenset({LOGP, ENTROPY, NOISE, VELOCITY}),
        "value": frozenset({VALUE}),
        "reward": frozenset({SCORE}),
    }
    called: ClassVar[str] = "flow"

    def __init__(self, role: str, shape: FlowShape, origin: Origin, *, head: str = "language") -> None:
        super().__init__()
        self.role, self.shape, self.origin, self.head, self.version = role, shape, origin, head, 0
        self.age = 0.0
        self.numbers = Numbers(shape.condition)
        self.tokenizer = cast(Any, self.numbers)
        clock = 1 + 2 * len(FREQUENCIES)
        if head == "value":
            self.value = _network(max(shape.condition, 1), shape, 1)
        elif head == "reward":
            self.rating = _network(2 * shape.dims + shape.condition, shape, 1)
        else:
            self.velocity = _network(shape.dims + clock + shape.condition, shape, shape.dims)
            if shape.noise.learned:
                self.noise = _network(clock + shape.condition, shape, shape.dims)
        self.eval()

    @property
    def context(self) -> int:
        """Unlimited: an episode may have any number of chains."""
        return 1 << 30

    @property
    def width(self) -> int:
        """Numbers in the vector of a token."""
        points = self.shape.steps + 1 if self.shape.token == "chain" else 1
        return max(self.shape.condition, points * self.shape.dims, 1)

    @property
    def end_id(self) -> int:
        """Id of an end point, and of a chain that is one token."""
        return self.shape.steps + 1

    def at(self, progress: float) -> None:
        """Set the age of the noise of the steps."""
        self.age = progress

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
        """Log-probabilities of chain tokens and draws; if needed the entropy of the Gaussians (0 for a draw), the share
        of noise of a draw (0 for others), and [T, P] the velocity there. A value head gives values, a reward head the
        scores of the last end point.
        """
        self.check_needs(needs, others or {})
        if foresight:
            raise UserError("a flow has no most likely token, so an objective with foresight is for language models")
        assert temperature > 0, "chains without noise have no density"
        assert packed.vectors_LD is not None, "the tokens of a flow have vectors"
        vectors_LD = packed.vectors_LD.to(next(self.parameters()).dtype)
        at_L = torch.arange(len(vectors_LD), device=vectors_LD.device)

        def latest(token_id: int) -> Tensor:
            """[T] where the token with this id was last, before each position."""
            seen_L = at_L.where(packed.token_ids_L == token_id, at_L.new_full((), -1))
            return seen_L.cummax(0).values[positions_T]

        condition_TC = vectors_LD[latest(chains.CONDITION)][:, : self.shape.condition]
        if self.head == "value":
            seen_TC = condition_TC if self.shape.condition else vectors_LD.new_ones(len(positions_T), 1)
            return {VALUE: self.value(seen_TC)[:, 0]}
        if self.head == "reward":
            return {SCORE: self._scores(vectors_LD[latest(self.end_id)], condition_TC)}
        id_T = packed.token_ids_L[positions_T]
        signals = self._chains(vectors_LD, positions_T, id_T, condition_TC, temperature, ENTROPY in needs)
        return self._draws(signals, vectors_LD, positions_T, id_T, condition_TC, latest(self.end_id), needs)

    def _scores(self, vector_TD: Tensor, condition_TC: Tensor) -> Tensor:
        """[T] scores, from the vectors of end points and from conditions."""
        end_at = self.shape.steps * self.shape.dims if self.shape.token == "chain" else 0
        end_TP = vector_TD[:, end_at : end_at + self.shape.dims]
        return cast(Tensor, self.rating(torch.cat([end_TP, end_TP**2, condition_TC], 1))[:, 0])

    def _chains(
        self,
        vectors_LD: Tensor,
        positions_T: Tensor,
        id_T: Tensor,
        condition_TC: Tensor,
        temperature: float,
        entropy: bool,
    ) -> dict[Signal, Tensor]:
        """Signals of the tokens that are points or chains; 0 at the others."""
        begun_S, start_SP, steps = self._steps(vectors_LD, positions_T, id_T)
        mean_RP, std_RP = self.transition(steps.before_RP, steps.place_R, condition_TC[steps.token_R], temperature)
        zero_T = vectors_LD.new_zeros(len(positions_T))

        def summed(start_S: Tensor, step_R: Tensor) -> Tensor:
            total_T = zero_T.index_add(0, begun_S, start_S).index_add(0, steps.token_R, step_R)
            return total_T / self._drawn

        signals = {LOGP: summed(normal_logp(start_SP), normal_logp(steps.after_RP, mean_RP, std_RP))}
        if entropy:
            own_R = normal_entropy(std_RP)
            signals[ENTROPY] = summed(
                torch.full_like(begun_S, 0.5 * (1.0 + _LOG_2PI) * self.shape.dims, dtype=own_R.dtype), own_R
            )
        return signals

    @property
    def _drawn(self) -> int:
        """What log-probabilities of a token are divided by."""
        points = self.shape.steps + 1 if self.shape.token == "chain" else 1
        return points * self.shape.dims if self.shape.per_number else 1

    def _steps(self, vectors_LD: Tensor, positions_T: Tensor, id_T: Tensor) -> tuple[Tensor, Tensor, _Steps]:
        """Which tokens hold a first point, these points, and all steps."""
        dims, count = self.shape.dims, self.shape.steps
        index_T = torch.arange(len(id_T), device=id_T.device)
        if self.shape.token == "step":
            begun_S, stepped_R = index_T[id_T == 1], index_T[(id_T > 1) & (id_T <= self.end_id)]
            at_R = positions_T[stepped_R]
            steps = _Steps(
                token_R=stepped_R,
                place_R=id_T[stepped_R] - 2,
                before_RP=vectors_LD[at_R - 1][:, :dims],
                after_RP=vectors_LD[at_R][:, :dims],
            )
            return begun_S, vectors_LD[positions_T[begun_S]][:, :dims], steps
        whole_S = index_T[id_T == self.end_id]
        points_SKP = vectors_LD[positions_T[whole_S]][:, : (count + 1) * dims].reshape(-1, count + 1, dims)
        steps = _Steps(
            token_R=whole_S.repeat_interleave(count),
            place_R=torch.arange(count, device=id_T.device).repeat(len(whole_S)),
            before_RP=points_SKP[:, :-1].reshape(-1, dims),
            after_RP=points_SKP[:, 1:].reshape(-1, dims),
        )
        return whole_S, points_SKP[:, 0], steps

    def _draws(
        self,
        signals: dict[Signal, Tensor],
        vectors_LD: Tensor,
        positions_T: Tensor,
        id_T: Tensor,
        condition_TC: Tensor,
        end_T: Tensor,
        needs: frozenset[Signal],
    ) -> dict[Signal, Tensor]:
        """The signals, with those of draws put in."""
        drawn_R = torch.nonzero(id_T > self.end_id)[:, 0]
        if NOISE in needs and not len(drawn_R):
            raise UserError("this objective learns from draws, fresh noise on end points, and there are none here; "
                            "take the rollout 'renoised'")  # fmt: skip
        dims = self.shape.dims
        place_R = id_T[drawn_R] - self.end_id - 1
        share_R1 = 1.0 - place_R[:, None].to(vectors_LD.dtype) / self.shape.steps
        noise_RP = vectors_LD[positions_T[drawn_R]][:, :dims]
        end_at = self.shape.steps * dims if self.shape.token == "chain" else 0
        end_RP = vectors_LD[end_T[drawn_R]][:, end_at : end_at + dims]
        mixed_RP = (1.0 - share_R1) * end_RP + share_R1 * noise_RP
        velocity_RP = self.velocity_at(mixed_RP, place_R, condition_TC[drawn_R])
        error_R = ((velocity_RP - (end_RP - noise_RP)) ** 2).mean(-1)
        signals[LOGP] = signals[LOGP].index_add(0, drawn_R, -error_R)
        zero_T = signals[LOGP].new_zeros(len(id_T))
        if NOISE in needs:
            signals[NOISE] = zero_T.index_add(0, drawn_R, share_R1[:, 0])
        if VELOCITY in needs:
            signals[VELOCITY] = zero_T[:, None].repeat(1, dims).index_add(0, drawn_R, velocity_RP)
        return signals

    def velocity_at(self, point_RP: Tensor, place_R: Tensor, condition_RC: Tensor) -> Tensor:
        """[R, P] velocity towards the end, at the time of a step."""
        return cast(Tensor, self.velocity(torch.cat([point_RP, self._clock(place_R, point_RP), condition_RC], 1)))

    def transition(
        self, point_RP: Tensor, place_R: Tensor, condition_RC: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """[R, P] mean and std of the next point; a temperature scales the variance, as it does for any Gaussian."""
        level_RP, noise = None, self.shape.noise
        if noise.learned:
            noise = noise.at(self.age)
            level_RP = self.noise(torch.cat([self._clock(place_R, point_RP), condition_RC], 1)).tanh()
        mean_RP, std_RP = noise.step(
            point_RP,
            self.velocity_at(point_RP, place_R, condition_RC),
            place_R[:, None].to(point_RP.dtype) / self.shape.steps,
            1.0 / self.shape.steps,
            level_RP,
        )
        if self.shape.bound is not None:
            mean_RP = mean_RP.clamp(-self.shape.bound, self.shape.bound)
        return mean_RP, std_RP * math.sqrt(temperature)

    def _clock(self, place_R: Tensor, like: Tensor) -> Tensor:
        """[R, 1 + 2 F] the time, and waves of it."""
        time_R1 = place_R[:, None].to(like.dtype) / self.shape.steps
        angle_RF = time_R1 * (math.pi * like.new_tensor(FREQUENCIES))
        return torch.cat([time_R1, angle_RF.sin(), angle_RF.cos()], 1)

    def prompt(self, task: Task) -> Segment:
        """The condition, as a token. Raises `UserError` for a prompt that is something else."""
        if task.images:
            raise UserError(f"task {task.key} has images, and the flow in the role '{self.role}' takes numbers only")
        return chains.condition_segment(self.numbers.read(task.prompt), self.width, text=str(task.prompt))

    def prompt_length(self, task: Task) -> int:
        """One token, whatever the prompt: a rollout may replace it by an environment's observation."""
        return 1

    def demonstration(self, task: Task, text: str, *key: int) -> Trajectory:
        """A target point, with draws of noise that are a function of the key."""
        end_P = chains.read_point(text, self.shape.dims, f"task {task.key}: a demonstration for a flow")
        row = np.zeros((1, self.width), np.float32)
        end_at = self.shape.steps * self.shape.dims if self.shape.token == "chain" else 0
        row[0, end_at : end_at + self.shape.dims] = end_P
        rng = np.random.default_rng(np.random.SeedSequence([abs(part) for part in key] or 0))
        places = chains.stratified(range(self.shape.steps), DRAWS, rng)
        segments = (
            self.prompt(task),
            Segment(actor="demonstration", token_ids=np.array([self.end_id]), text=text, vectors=row),
            chains.draws(self.end_id, places, self.width, rng),
        )
        return Trajectory(task=task, segments=segments, stop_reason="stop")

    def copied(self, role: str, model: Model) -> "FlowPolicy":
        """A copy; with a value head, a critic that is initialized to 0."""
        copy = FlowPolicy(role, self.shape, self.origin, head=_head(role, model))
        if copy.head == self.head:
            copy.load_state_dict(self.state_dict())
        return copy.to(getattr(torch, model.dtype))

    def save(self, folder: Path) -> None:
        """Write ``config.json`` and ``model.safetensors``."""
        write_folder(folder, self.state_dict(), self.origin)


def normal_logp(x_RP: Tensor, mean_RP: Tensor | None = None, std_RP: Tensor | None = None) -> Tensor:
    """[R] log-density of points under Gaussians with independent numbers; the standard one where none is given."""
    if mean_RP is None or std_RP is None:
        return -0.5 * (x_RP**2 + _LOG_2PI).sum(-1)
    z_RP = (x_RP - mean_RP) / std_RP
    return -(0.5 * (z_RP**2 + _LOG_2PI) + std_RP.log()).sum(-1)


def normal_entropy(std_RP: Tensor) -> Tensor:
    """[R] entropies in nats of Gaussians with independent numbers; a density's may be negative."""
    return (std_RP.log() + 0.5 * (1.0 + _LOG_2PI)).sum(-1)


def new_flow(path: Path, shape: FlowShape) -> Path:
    """Write a flow with random weights: normal with std 1 / sqrt(inputs), the last layers at zero."""
    settings = _SHAPE.dump_python(cast(Shape, shape), mode="json")
    path.mkdir(parents=True, exist_ok=True)
    config = {"model_type": MODEL_TYPE, "dtype": "float32", "flow": settings}
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    write_tensors(path / SINGLE_FILE, FlowPolicy("new", shape, _NOWHERE).state_dict())
    return path


_NOWHERE = Origin(source="", config=b"{}", stored={}, carried={})


def is_flow(folder: Folder) -> bool:
    """Whether a model folder holds a flow."""
    return bool(folder.config.get("model_type") == MODEL_TYPE)


def open_flow(role: str, model: Model, folder: Folder) -> FlowPolicy:
    """Read a flow. Raises `UserError` for tensors that do not fit its config."""
    place = f"'{folder.path / 'config.json'}'"
    with guard(f"{place}: 'flow' does not describe one"):
        settings = folder.config["flow"]
        if not isinstance(settings, Mapping) or "." in str(settings.get("kind")):
            raise UserError(f"{place}: 'flow' is {shown(repr(settings), 60)}; it is an object with the settings of one")
        shape = cast(FlowShape, _SHAPE.validate_python(settings))
    sizes = [size for held in folder.shapes.values() for size in held]
    most = {"layers": len(folder.shapes), "steps": _MOST_STEPS, **dict.fromkeys(("width", "dims"), max([0, *sizes]))}
    for name, largest in most.items():
        if getattr(shape, name) > largest:
            raise UserError(f"{place}: {name} of the flow is {getattr(shape, name)}; these weights allow {largest}")
    tensors = dict(folder.tensors())
    origin = Origin(
        source=str(folder.path.resolve()),
        config=folder.config_bytes,
        stored={name: tensor.dtype for name, tensor in tensors.items()},
        carried={},
    )
    policy = FlowPolicy(role, shape, origin, head=_head(role, model))
    own = {"value": "value.", "reward": "rating."}.get(policy.head, "")
    if any(name.startswith(own) for name in tensors):
        with guard(f"the weights of '{folder.path}' do not fit its config"):
            policy.load_state_dict(tensors)
    return policy.to(getattr(torch, model.dtype))


def _head(role: str, model: Model) -> str:
    """The requested head. Raises `UserError` for one that a flow does not have."""
    given = (model.latent, model.lora, model.context, model.projection)
    if model.outputs > 1 or any(setting is not None for setting in given):
        raise UserError("a flow has one output, no latent, no lora, no context and no projection; leave them out")
    return model.head


def _network(inputs: int, shape: FlowShape, outputs: int) -> nn.Sequential:
    """A multi-layer perceptron whose last layer is zero."""
    generator = torch.Generator().manual_seed(shape.seed)
    layers: list[nn.Module] = []
    for size in (shape.width,) * shape.layers:
        linear = nn.Linear(inputs, size, device="meta").to_empty(device="cpu")
        with torch.no_grad():
            linear.weight.copy_(torch.randn(size, inputs, generator=generator) * inputs**-0.5)
            linear.bias.zero_()
        layers += [linear, nn.SiLU()]
        inputs = size
    last = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)
