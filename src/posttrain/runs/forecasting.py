"""Seconds of a step and memory of each process for numbers of samplers and learners, from short runs on this machine.

Four profiles are measured: one process alone, one with half of the prompts, two at the same time (how slow a core is
when others are busy too), and one sampler with two learners. Steps of other numbers of processes, alternating or
sampled ahead, follow from these:

- n prompts are sampled in a + b n seconds; S samplers have P / S prompts each;
- K micro-batches are learned from in u + c K seconds; of W learners the first has K / W of them, rounded up, and after
  each round of W gradients are exchanged;
- processes that are busy at the same time are slower by the measured factor, and share the cores where there are more
  processes than cores;
- sampled ahead, a step takes as long as the longer of both, or as all work of all processes on all cores. Requests are
  sent and answers taken by threads of the run's own process, which adds their seconds to those of learning.

Memory is the resident memory that a process of the same kind had at its peak in a profile, memory that processes share
included. For each version that is held besides, a sampler has the buffer of its weights, which is shared with the run's
own process, and the weights in the form that decoding takes.
"""

import math
import multiprocessing
import os
import statistics
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from posttrain.cluster.local import Local
from posttrain.cluster.planning.search import OUT_OF_MEMORY, walk
from posttrain.cluster.ray import Ray
from posttrain.errors import UserError
from posttrain.recipes.tree import Recipe
from posttrain.runs.profiling import measured

if TYPE_CHECKING:
    from posttrain.policies.sizes import ModelSize

STEPS: Final = 6
"""Of each profile; the first is not counted."""
ENUMERATED: Final = 1024
"""Pairs of numbers of samplers and learners up to which all are tried."""
EXCHANGED: Final = 10
"""Bytes of a weight that an exchange of gradients takes in the run's own process, beside the weights that the other
learners read: its half of the sums (2), and what it receives of the whole, with a copy by weight (8).
"""
OWN, SAMPLER, LEARNER = "own", "sampler", "learner"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A step of a run, and the memory of its processes."""

    sample: float
    """Seconds."""
    learn: float
    total: float
    tokens: float
    """That are learned from."""
    weights: float
    """Seconds of changes of weights, which the other two contain."""
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Bytes, by kind of process."""

    @property
    def other(self) -> float:
        """Seconds of neither."""
        return max(0.0, self.total - self.sample - self.learn)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What was measured of a recipe."""

    alone: Seen
    half: Seen
    """With half of the prompts."""
    busy: Seen
    """Two runs at the same time."""
    shared: Seen
    """One sampler, two learners."""
    prompts: int
    batches: int
    """Micro-batches of a step."""
    parameters: int
    """Of the policy."""
    weights: int
    """Bytes of these."""
    decoding: int
    """Bytes of its copy for decoding."""
    cores: int


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A placement, and what a step takes there."""

    samplers: int
    """0 where there is one process."""
    learners: int
    lag: int
    phases: Mapping[str, float]
    """Seconds of each; those of sampling and learning are at the same time where it is sampled ahead."""
    seconds: float
    idle: Mapping[str, float]
    """Share of the step, by kind of process."""
    memory: Mapping[str, int]
    """Bytes at the peak, of one process of each kind."""

    @property
    def processes(self) -> int:
        """With the run's own."""
        return self.samplers + self.learners

    @property
    def bottleneck(self) -> str:
        """The longest phase."""
        return max(self.phases, key=lambda name: self.phases[name])

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "processes": self.processes, "bottleneck": self.bottleneck}


def profile(recipe: Recipe, steps: int = STEPS) -> Profile:
    """Run a recipe for some steps in each way. Raises `UserError` where `check` does."""
    name, given, size = check(recipe)
    bare = replace(recipe, cluster=Local(), schedule=Recipe.schedule)  # the default: alternating
    fewer: Any = replace(given, prompts=given.prompts // 2)
    ray = Ray(samplers=1, learners=2, cpus=0.25, store_mb=getattr(recipe.cluster, "store_mb", 256))
    alone = _each([bare], steps)[0]
    width = 2 if recipe.models["policy"].dtype == "bfloat16" else 4
    copied = size.parameters * width
    return Profile(
        alone=alone,
        half=_each([replace(bare, stages={**recipe.stages, name: fewer})], steps)[0],
        busy=_mean(_each([bare, replace(bare, seed=bare.seed + 1)], steps)),
        shared=_each([replace(bare, cluster=ray)], steps)[0],
        prompts=given.prompts,
        batches=max(1, -int(-alone.tokens // given.learner.micro_batch_tokens)),
        parameters=size.parameters,
        weights=copied,
        decoding=copied,
        cores=len(os.sched_getaffinity(0)),
    )


def check(recipe: Recipe) -> tuple[str, Any, "ModelSize"]:
    """The stage to plan, with its name, and the size of its policy. Raises `UserError` where there is none, or the
    learners cannot share its steps.
    """
    from posttrain.policies.sizes import trained_size

    needed = (
        "a plan of samplers and learners is of a stage that samples from a model that is there, with two prompts or "
        "more and learner.micro_batch_tokens, by which learners share a step"
    )
    stages: dict[str, Any] = dict(recipe.stages)
    name = next((name for name, own in stages.items() if hasattr(own, "rollout") and hasattr(own, "learner")), None)
    if name is None:
        raise UserError(f"{needed}; this recipe has the stages {', '.join(stages)}, of which none samples")
    given = stages[name]
    size = trained_size("policy", dict(recipe.models))
    if size is None:
        raise UserError(f"{needed}; this policy is made when the run starts")
    if given.prompts < 2 or given.learner.micro_batch_tokens is None:
        got = f"{name}.prompts={given.prompts} and {name}.learner.micro_batch_tokens={given.learner.micro_batch_tokens}"
        raise UserError(f"{needed}; got {got}")
    return name, given, size


def _each(recipes: Sequence[Recipe], steps: int) -> list[Seen]:
    """Runs at the same time, each in a process of its own, so that peaks of memory are its own."""
    with ProcessPoolExecutor(len(recipes), mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(seen, recipes, [steps] * len(recipes)))


def seen(recipe: Recipe, steps: int) -> Seen:
    """Medians of a run's steps after the first, and the memory of all its processes. This process is for it alone."""
    stop, found = threading.Event(), dict[int, tuple[str, int]]()
    thread = threading.Thread(target=_follow, args=(stop, found))
    thread.start()
    try:
        rows = measured(recipe, recipe.cluster, steps)
    finally:
        stop.set()
        thread.join()
    peaks = {OWN: int(max(row["peak_memory_bytes"] for row in rows))}
    for kind, size in found.values():
        peaks[kind] = max(peaks.get(kind, 0), size)

    def median(name: str) -> float:
        return statistics.median(float(row.get(name, 0.0)) for row in rows[1:])

    return Seen(
        sample=median("seconds_sample"),
        learn=median("seconds_learn"),
        total=median("seconds_total"),
        tokens=median("computed_tokens"),
        weights=median("seconds_weights"),
        peaks=peaks,
    )


def _mean(found: Sequence[Seen]) -> Seen:
    names = ("sample", "learn", "total", "tokens", "weights")
    return Seen(**{name: statistics.mean(getattr(own, name) for own in found) for name in names})


_KINDS: Final = {"ray::Samplers": SAMPLER, "ray::Learners": LEARNER}


def _follow(stop: threading.Event, found: dict[int, tuple[str, int]]) -> None:
    """Note the largest resident memory of the actors of this process's cluster."""
    from posttrain.cluster._processes import MARK, marked

    own = None
    while not stop.wait(0.3):
        own = os.environ.get(MARK, own)  # there while Ray starts
        for pid in [pid for pid, folder in marked().items() if folder == own]:
            for kind, size in _high(pid):
                found[pid] = kind, size


def _high(pid: int) -> Iterator[tuple[str, int]]:
    try:
        title = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # ended meanwhile
        return
    for name, kind in _KINDS.items():
        if title.startswith(name):
            yield from ((kind, int(line.split()[1]) << 10) for line in text.splitlines() if line.startswith("VmHWM"))


def forecast(of: Profile, samplers: int, learners: int, lag: int) -> Forecast:
    """What a step takes with that many processes; 0 samplers are one process that does all."""
    alone, cores = of.alone, of.cores
    slower = max(1.0, of.busy.sample / alone.sample), max(1.0, of.busy.learn / alone.learn)

    def crowd(count: int) -> float:
        return max(1.0, count / cores)

    if not samplers:
        phases = {"sample": alone.sample, "learn": alone.learn, "other": alone.other}
        memory = {OWN: alone.peaks[OWN]}
        return Forecast(
            samplers=0, learners=1, lag=lag, phases=phases, seconds=alone.total, idle={OWN: 0.0}, memory=memory
        )
    share = -(-of.prompts // samplers) / of.prompts
    half = (of.prompts // 2) / of.prompts
    each = max(0.0, (alone.sample - of.half.sample) / (1.0 - half))  # of all prompts, beside what is spent once
    asked = max(0.0, of.shared.sample - alone.sample)
    written = (alone.sample - each * (1.0 - share)) * (slower[0] if samplers > 1 else 1.0) * crowd(samplers)
    sample = written + asked
    computed, exchange = _learning(of, slower[1])
    rounds = -(-of.batches // learners)
    learn = alone.learn
    if learners > 1:
        own = computed * rounds * slower[1] * crowd(learners)
        learn = alone.learn - computed * of.batches + own + exchange * rounds * crowd(learners)
    phases = {"sample": sample, "learn": learn, "other": alone.other}
    busy = learn + alone.other
    seconds = sample + busy
    if lag:
        busy += max(0.0, asked - of.shared.weights)
        work = samplers * (alone.sample - each * (1.0 - share)) * slower[0] + asked
        work += learners * rounds * (computed * slower[1] + (exchange if learners > 1 else 0.0))
        work += (alone.learn - computed * of.batches + alone.other) * slower[1]
        crowded = work / cores if samplers + learners > cores else 0.0
        seconds = max(_ahead(sample, busy, slower), crowded)
    idle = {OWN: 1.0 - busy / seconds, SAMPLER: 1.0 - sample / seconds}
    if learners > 1:
        idle[LEARNER] = 1.0 - learn / seconds
    return Forecast(
        samplers=samplers,
        learners=learners,
        lag=lag,
        phases=phases,
        seconds=seconds,
        idle={name: max(0.0, value) for name, value in idle.items()},
        memory=_memory(of, learners, lag),
    )


def _learning(of: Profile, slower: float) -> tuple[float, float]:
    """Seconds of a micro-batch, and of an exchange between two learners."""
    fewer = of.half.tokens / max(of.alone.tokens, 1.0)
    computed = max(0.0, (of.alone.learn - of.half.learn) / max(1.0 - fewer, 0.1)) / of.batches
    computed = min(computed, of.alone.learn / of.batches)
    rounds = -(-of.batches // 2)
    once = of.alone.learn - computed * of.batches
    return computed, max(0.0, (of.shared.learn - once) / rounds - computed * slower)


def _ahead(sample: float, busy: float, slower: tuple[float, float]) -> float:
    """Seconds of a step whose sampling goes on while the run's own process is busy with another."""
    longer, shorter = max(sample, busy), min(sample, busy)
    factor = slower[0] if sample > busy else slower[1]
    return longer + shorter * (factor - 1.0)


def _memory(of: Profile, learners: int, lag: int) -> dict[str, int]:
    """Bytes at the peak of a process of each kind."""
    shared = of.shared.peaks
    versions = lag + 1 if lag else 0  # beside the copy that answers held-out tasks
    found = {
        OWN: shared[OWN] + versions * of.weights,
        SAMPLER: shared[SAMPLER] + versions * (of.weights + of.decoding),
    }
    if learners > 1:
        found[LEARNER] = shared[LEARNER]
    else:
        found[OWN] -= EXCHANGED * of.parameters + of.weights
    return found


def better(of: Profile, than: Forecast, most: int = 3) -> list[Forecast]:
    """Up to three placements that take less time with no more processes, the fastest first: of all, or where there are
    more than `ENUMERATED`, of those that the walk of `posttrain.cluster.planning.search` comes to.
    """
    largest = max(than.processes, 2)
    sizes = [largest, largest]  # of samplers from 0 on, of learners from 1 on
    tried = tried_all(of, than.lag, largest) if math.prod(sizes) <= ENUMERATED else walked(of, than.lag, largest)
    faster = [own for own in tried if own.seconds < 0.98 * than.seconds]
    return sorted(faster, key=lambda own: (own.seconds, own.processes, own.samplers))[:most]


def tried_all(of: Profile, lag: int, most: int) -> list[Forecast]:
    """All placements with `most` processes or fewer."""
    places = ((samplers, learners) for samplers in range(most) for learners in range(1, most + 1))
    return [forecast(of, *place, lag) for place in places if _possible(*place, most)]


def walked(of: Profile, lag: int, most: int, *, seed: int = 0, proposals: int = 4000) -> list[Forecast]:
    """Those of Metropolis: one number of processes is changed at a time."""

    def weighed(place: tuple[int, ...]) -> tuple[float, Forecast | None]:
        samplers, learners = place[0], place[1] + 1
        found = forecast(of, samplers, learners, lag)
        return (found.seconds, found) if _possible(samplers, learners, most) else (found.seconds * OUT_OF_MEMORY, None)

    found = walk([most, most], (min(1, most - 1), 0), weighed, seed=seed, proposals=proposals)
    return list(found.values())


def _possible(samplers: int, learners: int, most: int) -> bool:
    return samplers + learners <= most and (samplers > 0 or learners == 1)
