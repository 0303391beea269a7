"""A placement that a recipe requests, on named accelerators: samplers and learners with a device each.

Every sampler and every learner has whole models, or learners have parts of them (``sharding=fsdp``), as the processes
of `posttrain.cluster.ray` have. What a process holds is summed over what it is for: weights, gradients, optimizer,
activations, keys and values, older versions, buffers by which weights arrive. Seconds are those of
`posttrain.cluster.planning.accelerators`: from data sheets, nothing is measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from posttrain.cluster.planning.accelerators import STATE, WIDTH, Accelerator, Amount, Sizes, active, seconds, transfer
from posttrain.cluster.planning.calls import Call, Candidate, cost
from posttrain.errors import UserError

GRADIENT: Final = 4
"""Bytes of a weight's gradient; the rest of `STATE` is the optimizer's."""
ITERATIONS: Final = 5
"""Steps whose seconds are stated, as those of plans."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Numbers of processes, with a device each."""

    samplers: int
    learners: int
    scorers: int
    sharded: bool
    lag: int
    """Steps that are sampled ahead."""

    def check(self, devices: int) -> None:
        """Raise `UserError` where there are too few devices."""
        count = self.samplers + self.learners + self.scorers
        if count > devices:
            raise UserError(
                f"cluster.samplers={self.samplers}, cluster.learners={self.learners} and cluster.scorers="
                f"{self.scorers} ask for {count} devices, and gpus= has {devices}; ask for fewer, or give more"
            )


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a step is."""

    sizes: Mapping[str, Sizes]
    """By role."""
    trained: tuple[str, ...]
    amount: Amount
    on: Accelerator

    @property
    def scored(self) -> list[str]:
        """Roles that give log-probabilities or values."""
        return [role for role in self.sizes if role != "policy"]


def describe(asked: Asked, work: Work) -> dict[str, Any]:
    """Seconds of a step by phase, the longest of them, idle shares and bytes of each kind of process."""
    phases = _phases(asked, work)
    calls = _calls(asked, work, phases)
    learning = sum(value for name, value in phases.items() if name != "generate policy")
    if asked.lag:
        step = max(phases["generate policy"], learning)
    else:
        step = cost(calls, dict.fromkeys((call.name for call in calls), 0), iterations=ITERATIONS) / ITERATIONS
        step += phases["weights"]
    busy = {"sampler": phases["generate policy"], "learner": learning - phases["weights"]}
    if asked.scorers:
        busy["scorer"] = sum(phases[f"score {role}"] for role in _apart(asked, work))
        busy["learner"] -= busy["scorer"]
    memory = dict(_memory(asked, work))
    return {
        "samplers": asked.samplers,
        "learners": asked.learners,
        "scorers": asked.scorers,
        "lag": asked.lag,
        "phases": phases,
        "longest": max(phases, key=lambda name: phases[name]),
        "step": step,
        "seconds": ITERATIONS * step,
        "idle": {kind: max(0.0, 1.0 - value / step) for kind, value in busy.items()},
        "memory": memory,
        "fits": all(sum(parts.values()) <= work.on.memory for parts in memory.values()),
    }


def _apart(asked: Asked, work: Work) -> list[str]:
    """The roles whose forward passes scorers make."""
    return [role for role in work.scored if role not in work.trained] if asked.scorers else []


def _phases(asked: Asked, work: Work) -> dict[str, float]:
    """Seconds of each call of a step, and of the way of new weights to the samplers."""
    apart = _apart(asked, work)

    def of(kind: Any, role: str, count: int) -> float:
        return seconds(kind, work.sizes[role], work.amount, (1, count, 1), work.on)

    found = {"generate policy": of("generate", "policy", asked.samplers)}
    for role in work.scored:
        found[f"score {role}"] = of("score", role, asked.scorers if role in apart else asked.learners)
    for role in work.trained:
        found[f"train {role}"] = of("train", role, asked.learners)
    return found | {"weights": transfer(work.sizes["policy"], (1, asked.samplers, 1), work.on)}


def _calls(asked: Asked, work: Work, phases: Mapping[str, float]) -> list[Call]:
    """The calls of a step with one candidate each."""
    first, second = asked.samplers, asked.samplers + asked.learners
    devices = {
        "generate": frozenset(range(first)),
        "train": frozenset(range(first, second)),
        "apart": frozenset(range(second, second + asked.scorers)),
    }
    apart = _apart(asked, work)

    def call(kind: str, role: str, place: str, after: tuple[str, ...] = ()) -> Call:
        name = f"{kind} {role}"
        own = Candidate(devices=devices[place], seconds=phases[name])
        return Call(name=name, model=role, candidates=[own], after=after, trains=kind == "train")

    calls = [call("generate", "policy", "generate")]
    for role in work.scored:
        calls.append(call("score", role, "apart" if role in apart else "train", ("generate policy",)))
    before = tuple(own.name for own in calls)
    return calls + [call("train", role, "train", before) for role in work.trained]


def _memory(asked: Asked, work: Work) -> Iterator[tuple[str, dict[str, int]]]:
    """Bytes of one process of each kind, by what they are for. `own` is the first learner."""
    sizes, amount, policy = work.sizes, work.amount, work.sizes["policy"]
    apart, count = _apart(asked, work), asked.learners
    copy = policy.parameters * WIDTH
    trained = sum(sizes[role].parameters for role in work.trained)
    learned = sum(own.parameters for role, own in sizes.items() if role not in apart)
    part = count if asked.sharded else 1
    activations = max(active("train", sizes[role], amount, (1, count, 1)) for role in work.trained)
    learner = {
        "weights": learned * WIDTH // part,
        "gradients": trained * GRADIENT // part,
        "optimizer": trained * (STATE - GRADIENT) // part if asked.sharded else 0,
        "activations": activations,
    }
    own = learner | {"versions": asked.lag * copy, "buffers": copy}
    if asked.sharded and count > 1:
        own["weights"] += trained * WIDTH  # whole, for samplers and checkpoints
    own["optimizer"] = trained * (STATE - GRADIENT) // part
    yield "own", own
    if count > 1:
        yield "learner", learner
    yield (
        "sampler",
        {
            "weights": copy,
            "keys and values": active("generate", policy, amount, (1, asked.samplers, 1)),
            "versions": asked.lag * copy,
            "buffers": copy,
        },
    )
    if asked.scorers:
        passes = [active("score", sizes[role], amount, (1, asked.scorers, 1)) for role in apart]
        weights = sum(sizes[role].parameters for role in apart) * WIDTH
        yield "scorer", {"weights": weights, "activations": max(passes, default=0)}
