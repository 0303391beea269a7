"""Many steps of sampling and learning on separate machines, simulated: alternating, with a fixed lag, streaming.

Sources: AsyncFlow (arXiv 2507.01663) for a delay of one step, LlamaRL (arXiv 2505.24034) for a lag, and ASearcher
(arXiv 2508.07976; released code of AReaL, areal/api/workflow_api.py) for the quota of streaming: a sample may start
while accepted + running < (eta + version + 1) B.

Seconds are given, no clock is read. The quota bounds when a sample starts, and not how old it is when it is learned
from: a long one ends after many versions. `Streamed.staleness` has what really happened, and `drop_older` leaves out
what is too old at its end, which then frees a place of the quota.

Differs: a sample keeps the weights that it began with; samples of a group are separate.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

Work = Sequence[Sequence[float]]
"""Seconds of each sample, by step."""


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What samples and what learns."""

    places: int
    """Samples at a time."""
    train: float
    """Seconds to learn from a step."""
    sync: float = 0.0
    """Seconds until new weights are where the samplers can load them, while these go on."""
    load: float = 0.0
    """Seconds in which the samplers load them and do nothing else."""


class Failures:
    """When nodes of samplers fail: at random, each after a time with an exponential distribution."""

    def __init__(self, *, places: int, every: float, back: float, seed: int = 0) -> None:
        """`places` of a node, mean seconds until it fails, seconds until it is back."""
        self.places, self._every, self._back, self._seed = places, every, back, seed
        self._drawn: dict[int, tuple[np.random.Generator, list[float]]] = {}

    def _times(self, node: int, until: float) -> list[float]:
        """When a node fails, from the start to some time later than `until`."""
        if node not in self._drawn:
            self._drawn[node] = np.random.default_rng((self._seed, node)), []
        draws, times = self._drawn[node]
        while not times or times[-1] <= until:
            times.append((times[-1] + self._back if times else 0.0) + float(draws.exponential(self._every)))
        return times

    def up(self, place: int, when: float) -> float:
        """The first time from `when` on at which the node of a place is there."""
        before = [time for time in self._times(place // self.places, when) if time <= when]
        return max(when, before[-1] + self._back) if before else when

    def next(self, place: int, when: float) -> float:
        """The first time after `when` at which it fails."""
        return next(time for time in self._times(place // self.places, when) if time > when)

    def back(self, lost: float) -> float:
        """When a node that failed is there again."""
        return lost + self._back


def _sampled(free: list[tuple[float, int]], seconds: float, begin: float, failures: Failures | None) -> float:
    """When a sample has ended that may start at `begin`; one whose node fails starts again on another place."""
    while True:
        when, place = heapq.heappop(free)
        start = max(when, begin)
        lost = math.inf
        if failures is not None:
            start = failures.up(place, start)
            lost = failures.next(place, start)
        if start + seconds <= lost:
            heapq.heappush(free, (start + seconds, place))
            return start + seconds
        assert failures is not None, "only these are lost"
        heapq.heappush(free, (failures.back(lost), place))
        begin = lost


def lagged(
    work: Work, machines: Machines, lag: int, *, overlapped: bool = False, failures: Failures | None = None
) -> list[float]:
    """When each step has been learned from: step s is sampled with the weights of step s - 1 - lag.

    `lag` 0 alternates. `overlapped` gives places that a step leaves free to the next one, while its long samples go
    on; then samplers hold several versions. With `failures` samples of a node that fails are sampled again.
    """
    free = [(0.0, place) for place in range(machines.places)]
    sampled, trained = list[float](), list[float]()
    for step, samples in enumerate(work):
        version = step - 1 - lag
        begin = trained[version] + machines.sync if version >= 0 else 0.0
        if sampled and not overlapped:
            begin = max(begin, sampled[-1])
        begin += machines.load if version >= 0 else 0.0
        end = begin
        for seconds in samples:
            end = max(end, _sampled(free, seconds, begin, failures))
        sampled.append(end)
        trained.append(max([end, *trained[-1:]]) + machines.train)
    return trained


@dataclass(kw_only=True)
class Streamed:
    """What a simulation of streaming found."""

    trained: list[float] = field(default_factory=list)
    """When each step has been learned from."""
    staleness: list[int] = field(default_factory=list)
    """Of each sample that was learned from: versions between its start and its step."""
    dropped: int = 0
    """Samples that were too old at their end."""
    most_started: int = 0
    """Largest number of samples accepted or running at any time, to compare with the quota."""


def streaming(
    samples: Sequence[float],
    machines: Machines,
    *,
    batch: int,
    steps: int,
    eta: int,
    drop_older: int | None = None,
    failures: Failures | None = None,
) -> Streamed:
    """This many steps of `batch` samples, taken as they end; sample i takes ``samples[i % len(samples)]`` seconds. With
    `failures` samples of a node that fails are sampled again, with the version of their start.
    """
    found, now, number, version = Streamed(), 0.0, 0, 0
    running: list[tuple[float, int, int]] = []
    free = [(0.0, place) for place in range(machines.places)]
    waiting: list[int] = []
    accepted, busy_until, learning = 0, 0.0, False
    while len(found.trained) < steps:
        while len(running) < machines.places and accepted + len(running) < (eta + version + 1) * batch:
            end = _sampled(free, samples[number % len(samples)], now, failures)
            heapq.heappush(running, (end, number, version))
            number += 1
        found.most_started = max(found.most_started, accepted + len(running) - version * batch)
        if not learning and len(waiting) >= batch:
            taken, waiting = waiting[:batch], waiting[batch:]
            found.staleness += [version - born for born in taken]
            learning, busy_until = True, now + machines.train
        ends = [running[0][0]] if running else []
        now = min([*ends, *([busy_until] if learning else [])])
        if learning and now == busy_until:
            found.trained.append(now)
            learning, version = False, version + 1
        while running and running[0][0] <= now:
            _, _, born = heapq.heappop(running)
            if drop_older is not None and version - born > drop_older:
                found.dropped += 1
                continue
            waiting.append(born)
            accepted += 1
    return found
