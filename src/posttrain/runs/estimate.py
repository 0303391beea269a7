"""Estimates the memory of a run from its recipe and the headers of its models, before anything of them is loaded.

Weights, gradients and optimizer state are certain: a run for which these alone do not fit is refused. Activations, keys
and values, logits and the copy of the weights that decoding makes depend on lengths, and are estimates: where they do
not fit, that is a warning. All of it is for models on a CPU.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from posttrain.errors import UserError
from posttrain.recipes.tree import Recipe
from posttrain.runs.machine_memory import Available, available_memory
from posttrain.stages import Stage
from posttrain.training.settings import Learning
from posttrain.types import Task

if TYPE_CHECKING:
    from posttrain.policies.sizes import ModelSize

MIB: Final = 1 << 20
PROGRAM: Final = 330 * MIB
"""Python, torch, the tokenizer and the record: resident memory of a run whose models take next to nothing."""
LOGITS: Final = 1 << 25
"""Logits that exist at a time when learning."""
COPIED: Final = 1 << 30
"""Weights of layers up to which decoding makes a copy of its own."""
COPIED_HEAD: Final = 1 << 26
"""The same for the matrix to logits."""
LARGE: Final = 1 << 28
"""Weights from which sampling takes no more for keys and values than half of the weights take, or than `CACHED`."""
CACHED: Final = 3 << 27
ROLLOUT: Final = 2 << 10
"""What a rollout takes at least while its step lasts, without its tokens."""
CERTAIN: Final = ("weights", "gradients", "optimizer", "rollouts")
LEARNING: Final = ("gradients", "activations", "logits")
"""What is there only while a step is learned from."""
SAMPLING: Final = ("decoding", "keys and values", "drawn logits")
"""What is there only while it is sampled."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes that a run takes at its peak, by part."""

    parts: Mapping[str, int] = field(default_factory=dict)
    available: Available | None = None
    unknown: tuple[str, ...] = ()
    """Roles whose size cannot be read before they are loaded."""

    @property
    def total(self) -> int:
        """Bytes at the peak, with the program: sampling and learning do not take theirs at the same time."""
        both = sum(count for name, count in self.parts.items() if name not in (*LEARNING, *SAMPLING))
        return PROGRAM + both + sum(self.parts.get(name, 0) for name in self.largest)

    @property
    def largest(self) -> tuple[str, ...]:
        """The parts of the phase that takes more: `LEARNING` or `SAMPLING`."""
        return max((LEARNING, SAMPLING), key=lambda phase: sum(self.parts.get(name, 0) for name in phase))

    @property
    def certain(self) -> int:
        """Bytes that are taken whatever the lengths are."""
        return sum(self.parts.get(name, 0) for name in CERTAIN)

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None where the system does not say what is there."""
        return None if self.available is None else self.total <= self.available.bytes

    def lines(self) -> list[str]:
        """The estimate for a person to read."""
        other, when = (SAMPLING, "learning") if self.largest == LEARNING else (LEARNING, "sampling")
        shown = {name: count for name, count in self.parts.items() if count and (name != "rollouts" or count >= MIB)}
        parts = "".join(f", {name} {_size(count)}" for name, count in shown.items() if name not in other)
        lines = [f"about {_size(self.total)} at the peak: program {_size(PROGRAM)}{parts}"]
        if rest := ", ".join(f"{name} {_size(count)}" for name, count in shown.items() if name in other):
            lines.append(f"that is while {when}; at other times, in place of some of it: {rest}")
        lines += [f"not counted, since its size is known only when it is loaded: {role}" for role in self.unknown]
        if self.available is not None:
            verdict = "fits" if self.fits else "warning: may not fit"
            lines.append(f"{verdict}: {_size(self.available.bytes)} are there ({self.available.limit})")
        return lines

    def check(self) -> None:
        """Raise `UserError` where weights, gradients and optimizer alone take more than is there."""
        if self.available is None or self.certain <= self.available.bytes:
            return
        rollouts = self.parts.get("rollouts", 0)
        if rollouts > self.available.bytes:
            raise UserError(
                f"the rollouts of a step take at least {_size(rollouts)} ({rollouts // ROLLOUT:,} of them), and "
                f"{_size(self.available.bytes)} are there ({self.available.limit}). Set fewer prompts, or fewer "
                "rollouts of each (rollout.n)"
            )
        named = [name for name in CERTAIN if name != "rollouts" or rollouts >= MIB]
        parts = ", ".join(f"{name} {_size(self.parts.get(name, 0))}" for name in named)
        raise UserError(
            f"the models of this run take {_size(self.certain)} ({parts}), and {_size(self.available.bytes)} are there "
            f"({self.available.limit}). Train adapters (models.policy.lora={{}}), take a smaller type "
            "(models.policy.dtype=bfloat16) or a smaller model, or free memory"
        )


def estimate(recipe: Recipe, held_out: int, tasks: "Mapping[str, list[Task]]") -> Estimate:
    """The estimate for a recipe whose stages train on these tasks, by the stage's name."""
    from posttrain.policies.sizes import trained_size

    sizes: dict[str, ModelSize] = {}
    unknown = []
    for role, model in recipe.models.items():
        size = None if model.is_remote else trained_size(role, dict(recipe.models))
        if size is not None:
            sizes[role] = size
        elif not model.is_remote:
            unknown.append(role)
    parts: dict[str, int] = dict.fromkeys(CERTAIN, 0)
    for role, size in sizes.items():
        model = recipe.models[role]
        width = 2 if model.dtype == "bfloat16" else 4
        adapters = model.lora.rank * size.adapted if model.lora is not None else 0
        trained = (adapters or size.parameters) if model.trained else 0
        parts["weights"] += (size.parameters * (not model.shared) + adapters) * width
        optimizers, gradients = 1, 1
        if role == "policy":
            optimizers, gradients = 1 + _experts(recipe), 1 + _probed(recipe) + _private(recipe)
        parts["gradients"] += gradients * trained * 4
        # Moments, and masters of half-precision weights.
        parts["optimizer"] += optimizers * trained * (8 + (4 if width == 2 else 0))
    parts["rollouts"] = ROLLOUT * max(map(_rollouts, recipe.stages.values()), default=0)
    if "policy" in sizes:
        parts |= _lengths(recipe, sizes["policy"], held_out, tasks)
    return Estimate(parts=parts, available=available_memory(), unknown=tuple(unknown))


def _rollouts(stage: Stage) -> int:
    """Rollouts of a step."""
    rollout: Any = getattr(stage, "rollout", None)
    return 0 if rollout is None else int(getattr(stage, "prompts", 1) * getattr(rollout, "n", 1))


def _experts(recipe: Recipe) -> int:
    """Optimizers that the policy has beside its own: one where demonstrations have an update of their own."""
    stages = recipe.stages.values()
    return int(any(getattr(stage, "experts", None) and getattr(stage, "expert_learner", None) for stage in stages))


def _probed(recipe: Recipe) -> int:
    """Gradients that the policy has beside its own at a time: three where a balance compares them."""
    balances = (getattr(stage, "balance", None) for stage in recipe.stages.values())
    return 3 * any(balance is not None and balance.validated for balance in balances)


def _private(recipe: Recipe) -> int:
    """The same where each record of a batch has a gradient of its own, all of which are there at a time."""
    learners = [(stage, getattr(stage, "learner", None)) for stage in recipe.stages.values()]
    private = [stage for stage, own in learners if isinstance(own, Learning) and own.privacy is not None]
    return max((int(getattr(stage, "batch", 0)) for stage in private), default=0)


def _lengths(recipe: Recipe, size: "ModelSize", held_out: int, tasks: "Mapping[str, list[Task]]") -> dict[str, int]:
    """Parts that depend on the number of sequences and their lengths: the largest of any stage."""
    from posttrain.kernels import packed_width
    from posttrain.policies._memory import room_beside, trained_bytes
    from posttrain.policies._shape import kept_numbers

    model = recipe.models["policy"]
    width = 2 if model.dtype == "bfloat16" else 4
    found = dict.fromkeys((*LEARNING[1:], *SAMPLING), 0)
    layer = kept_numbers(
        width=size.width, heads=size.heads, kv_heads=size.kv_heads, mlp_width=size.mlp_width, normed=size.normed
    )
    kept = max(1, size.layers * layer * width)
    token = 2 * size.layers * size.kv_heads * width
    weights = size.parameters * width
    trained = model.lora.rank * size.adapted if model.lora is not None else size.parameters
    room = room_beside(weights + trained * (width * (model.lora is not None) + trained_bytes(width)))
    for name, stage in recipe.stages.items():
        lengths = _batch(stage, tasks.get(name, []), size)
        sequences, completion = lengths.sequences, lengths.completion
        learning = getattr(stage, "learner", None)
        if isinstance(learning, Learning):
            at_a_time = learning.tokens_at_a_time("cpu", kept, room)
            tokens = min(at_a_time, lengths.prompts * lengths.prompt + sequences * completion)
            backward = 3 * size.mlp_width * width  # gradients of a layer's gate, its other half and their product
            found["activations"] = max(found["activations"], tokens * (kept + backward))
            learned = width * min(LOGITS, min(tokens, sequences * completion) * size.vocabulary)
            found["logits"] = max(found["logits"], learned)
        if getattr(stage, "rollout", None) is not None or held_out:
            slots = min(getattr(recipe.engine, "slots", 256), max(sequences, held_out))
            cached = slots * (lengths.longest + completion) * token
            if weights >= LARGE:
                cached = min(cached, max(weights // 2, CACHED))
            found["keys and values"] = max(found["keys and values"], cached)
            found["drawn logits"] = max(found["drawn logits"], slots * size.vocabulary * width)
    head = size.vocabulary * size.width
    layers = size.parameters - head
    if layers * width <= COPIED:
        found["decoding"] = packed_width(model.dtype) * (layers + head * (head * width <= COPIED_HEAD))
    return found


class _Lengths(NamedTuple):
    """What a step consists of, in tokens at most."""

    sequences: int
    prompts: int
    """Each is computed once, with all its completions."""
    longest: int
    """Tokens of the longest prompt."""
    prompt: int
    """Tokens of a prompt on average, in a step with long ones: two standard errors above the mean of all tasks."""
    completion: int


def _batch(stage: Stage, tasks: "list[Task]", size: "ModelSize") -> _Lengths:
    """Sequences of a step and their lengths."""
    rollout: Any = getattr(stage, "rollout", None)
    texts = [task.prompt if isinstance(task.prompt, str) else str(task.prompt) for task in tasks[:1000]]
    letters = 4 if size.vocabulary > 1000 else 1  # of a token: about four of English, one of a byte tokenizer
    lengths = np.array([len(text) for text in texts] or [0]) / letters
    longest = int(lengths.max()) + 1
    sampling = getattr(rollout, "sampling", None)
    count: int = (getattr(stage, "prompts", 0) if sampling is not None else 0) or getattr(stage, "batch", 32)
    prompt = min(longest, int(lengths.mean() + 2.0 * lengths.std() / math.sqrt(count)) + 1)
    if sampling is not None:
        return _Lengths(count * getattr(rollout, "n", 8), count, longest, prompt, sampling.max_tokens)
    shown = max((len(text) for task in tasks[:1000] for text in task.demonstrations), default=64 * letters)
    return _Lengths(count, count, longest, prompt, shown // letters + 1)


def _size(count: int) -> str:
    """``1.2 GiB`` or ``310 MiB``."""
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / MIB:.0f} MiB"
