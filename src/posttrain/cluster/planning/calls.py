"""Calls of models in a step, the ways in which each can be executed, and the time that a plan takes.

Source: ReaLHF (Mei et al. 2024, arXiv:2406.14088), released search engine (openpsi-project/ReaLHF, csrc/search). A
step's calls (generate, score, train) form a graph; a candidate executes one of them on some devices. A plan names one
candidate a call. Its cost is the end of the last call of several iterations, so that calls of the next one may begin
while others are busy.

Differs: transfers of weights between layouts are calls that occupy their devices (in the released code they wait for
none), and a transfer that nobody measured is an error (there it costs nothing). Ties of ready times are broken by
iteration, then by the order of the calls. Weights stay where they are trained, so that nothing is sent back from a call
that only reads them.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from posttrain.errors import UserError

Layout = tuple[int, int, int]
"""Degrees of pipeline, data and tensor parallelism."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to execute a call."""

    devices: frozenset[int]
    seconds: float
    layout: Layout = (1, 1, 1)
    static: int = 0
    """Bytes that are there all the time: weights, optimizer."""
    active: int = 0
    """Bytes while the call runs."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a model in every iteration."""

    name: str
    model: str
    candidates: Sequence[Candidate]
    after: tuple[str, ...] = ()
    """Calls of the same iteration that it waits for."""
    trains: bool = False
    """Whether it changes the model: calls of the next iteration on the same model wait for it."""


Transfers = Mapping[tuple[str, Layout, Layout], float]
"""Seconds by model, source and target layout."""
Plan = Mapping[str, int]
"""The index of the candidate of each call."""


@dataclass(frozen=True, order=True)
class _Task:
    iteration: int
    place: int
    """In the order of the calls; transfers come at the place of the call that they are for."""
    part: int
    """0 for a transfer before the call, 1 for the call."""


@dataclass
class _Work:
    devices: frozenset[int]
    seconds: float
    parents: list[_Task] = field(default_factory=list)


def cost(
    calls: Sequence[Call], plan: Plan, transfers: Transfers | None = None, iterations: int = 5, *, barrier: bool = False
) -> float:
    """Seconds until the last call of this many iterations has ended."""
    return max(ends(calls, plan, transfers, iterations, barrier=barrier).values())


def ends(
    calls: Sequence[Call], plan: Plan, transfers: Transfers | None = None, iterations: int = 5, *, barrier: bool = False
) -> dict[tuple[int, str], float]:
    """When each call of each iteration ends, in seconds.

    With `barrier` an iteration begins when all calls of the one before have ended.
    """
    work = _unrolled(calls, plan, transfers, iterations)
    if barrier:
        _wait_for_all(work)
    children: dict[_Task, list[_Task]] = {task: [] for task in work}
    missing = {task: len(own.parents) for task, own in work.items()}
    for task, own in work.items():
        for parent in own.parents:
            children[parent].append(task)
    ready = [(0.0, task) for task, count in missing.items() if not count]
    heapq.heapify(ready)
    free: dict[int, float] = {}
    ended: dict[_Task, float] = {}
    begins = dict.fromkeys(work, 0.0)
    while ready:
        when, task = heapq.heappop(ready)
        own = work[task]
        start = max([when, *(free.get(device, 0.0) for device in own.devices)])
        ended[task] = start + own.seconds
        for device in own.devices:
            free[device] = ended[task]
        for child in children[task]:
            begins[child] = max(begins[child], ended[task])
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, (begins[child], child))
    if len(ended) < len(work):
        raise UserError("the calls of a step wait for one another in a circle")
    return {(task.iteration, calls[task.place].name): end for task, end in ended.items() if task.part == 1}


def _unrolled(calls: Sequence[Call], plan: Plan, transfers: Transfers | None, iterations: int) -> dict[_Task, _Work]:
    """All calls of all iterations with what they wait for, transfers of weights included."""
    place = {call.name: i for i, call in enumerate(calls)}
    trainer = {call.model: i for i, call in enumerate(calls) if call.trains}
    work: dict[_Task, _Work] = {}
    for iteration in range(iterations):
        for i, call in enumerate(calls):
            own = call.candidates[plan[call.name]]
            parents = [_Task(iteration, place[name], 1) for name in call.after]
            trained = trainer.get(call.model)
            if iteration and trained is not None:
                before = _Task(iteration - 1, trained, 1)
                parents.append(before)
                source = calls[trained].candidates[plan[calls[trained].name]]
                moved = _transfer(call.model, source, own, transfers)
                if moved is not None:
                    first = _Task(iteration, i, 0)
                    work[first] = _Work(source.devices | own.devices, moved, [before])
                    parents.append(first)
            if iteration and trained is None:
                parents.append(_Task(iteration - 1, i, 1))
            work[_Task(iteration, i, 1)] = _Work(own.devices, own.seconds, parents)
    return work


def _wait_for_all(work: dict[_Task, _Work]) -> None:
    """Let each task wait for all those of the iteration before."""
    for task, own in work.items():
        own.parents += [other for other in work if other.iteration == task.iteration - 1 and other not in own.parents]


def _transfer(model: str, source: Candidate, target: Candidate, transfers: Transfers | None) -> float | None:
    """Seconds to bring weights from one call's devices to another's; None where they are there already."""
    if source.devices == target.devices and source.layout == target.layout:
        return None
    if transfers is None:
        return None
    key = (model, source.layout, target.layout)
    if key not in transfers:
        raise UserError(
            f"nobody measured how long the weights of '{model}' take from layout {source.layout} to {target.layout}; "
            "a transfer without a measurement is not free: add it to the profile"
        )
    return transfers[key]


def filtered(
    candidates: Sequence[Candidate],
    *,
    batch: int,
    trains: bool,
    minibatches: int = 1,
    per_node: int = 8,
    capacity: int | None = None,
    most: int = 1000,
) -> list[Candidate]:
    """The candidates that can run, at most this many of the fastest."""
    kept = []
    for candidate in candidates:
        pipeline, data, tensor = candidate.layout
        least = 2 * data * pipeline * minibatches if trains else data * pipeline
        nodes = -(-len(candidate.devices) // per_node)
        crowded = trains and tensor * data > per_node and nodes <= 1
        if batch < least or crowded or tensor > 8 or pipeline > max(nodes, 8):
            continue
        if capacity is not None and candidate.static + candidate.active >= capacity:
            continue
        kept.append(candidate)
    return sorted(kept, key=lambda candidate: candidate.seconds)[:most]
