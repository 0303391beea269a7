"""Schedules worked out by hand, and what a quota bounds and does not bound."""

import math

import numpy as np
import pytest

from posttrain.cluster.planning.streams import Failures, Machines, lagged, streaming


def test_alternating_takes_the_sum_of_its_parts() -> None:
    """Two samples of 4 on one place, 3 to learn, 1 to send: 8 + 3, then 1 + 8 + 3."""
    machines = Machines(places=1, train=3.0, sync=1.0)
    assert lagged([[4.0, 4.0]] * 2, machines, 0) == [11.0, 23.0]


def test_with_a_delay_of_one_step_the_longer_part_counts() -> None:
    """The experiment of the sheet of AsyncFlow: 4, 3 and 1 ms, of which 0.2 to load; 8.2 against 4.2, none beyond."""
    machines = Machines(places=1, train=3.0, sync=0.8, load=0.2)
    work = [[4.0]] * 200
    alternating, one, three = (lagged(work, machines, lag)[-1] for lag in (0, 1, 3))
    assert alternating / 200 == pytest.approx(8.0, rel=0.01)
    assert one / 200 == pytest.approx(4.2, rel=0.01)
    assert alternating / one == pytest.approx(1.9, abs=0.02)
    assert three == pytest.approx(one, rel=0.01)


def test_step_s_waits_for_the_weights_of_step_s_1_k() -> None:
    """k = 1: steps 0 and 1 are sampled at once; step 2 waits for step 0, which ends at 1 + 5."""
    machines = Machines(places=9, train=5.0)
    assert lagged([[1.0]] * 3, machines, 1) == [6.0, 11.0, 16.0]
    assert lagged([[1.0], [1.0], [9.0]], machines, 1) == [6.0, 11.0, 20.0]


def test_places_that_are_free_take_the_next_step() -> None:
    """Two places, samples of 1 and 9: the next step begins at 1 beside the long one, and not at 9."""
    machines = Machines(places=2, train=0.0)
    assert lagged([[9.0, 1.0], [1.0, 1.0]], machines, 5) == [9.0, 10.0]
    assert lagged([[9.0, 1.0], [1.0, 1.0]], machines, 5, overlapped=True) == [9.0, 9.0]


def test_with_equal_lengths_two_is_the_end() -> None:
    machines = Machines(places=8, train=1.0)
    work = [[1.0] * 8] * 100
    alternating = lagged(work, machines, 0)[-1]
    for lag in (1, 2, 4):
        assert alternating / lagged(work, machines, lag, overlapped=True)[-1] == pytest.approx(2.0, abs=0.03)


def test_machines_that_all_sample_and_then_all_learn_lose_nothing_by_equal_lengths() -> None:
    """Of four waves: twice the places halve both phases."""
    work = [[1.0] * 32] * 100
    apart, together = Machines(places=8, train=4.0), Machines(places=16, train=2.0)
    ratio = lagged(work, together, 0)[-1] / lagged(work, apart, 1, overlapped=True)[-1]
    assert ratio == pytest.approx(1.0, abs=0.03)


def test_long_tails_are_hidden_overlapped_and_not_batch_after_batch() -> None:
    rng = np.random.default_rng(0)
    work = np.minimum(rng.lognormal(-0.5, 1.0, (60, 256)), 8.0).tolist()
    machines = Machines(places=256, train=1.0)
    alternating = lagged(work, machines, 0)[-1]
    batches, beside, two = (
        alternating / lagged(work, machines, lag, overlapped=side)[-1]
        for lag, side in ((1, False), (1, True), (2, True))
    )
    assert batches < 1.3 < 1.8 < beside < two


def test_the_quota_bounds_the_start_and_not_the_end() -> None:
    """One sample in forty takes a hundred times as long: its staleness is far beyond eta, while few ever started."""
    samples = [1.0] * 39 + [100.0]
    machines = Machines(places=20, train=1.0)
    found = streaming(samples, machines, batch=10, steps=200, eta=1)
    assert found.most_started <= 2 * 10
    assert max(found.staleness) > 10
    dropping = streaming(samples, machines, batch=10, steps=200, eta=1, drop_older=1)
    assert dropping.dropped > 0
    assert max(dropping.staleness) <= 3  # what waits to be learned from grows older


def test_a_quota_of_zero_samples_a_batch_a_version() -> None:
    """And all of it ends before the update: 1 + 1 seconds a step, as alternating, nothing stale."""
    found = streaming([1.0], Machines(places=9, train=1.0), batch=4, steps=5, eta=0)
    assert found.trained == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert set(found.staleness) == {0}


def test_more_quota_is_faster_and_staler() -> None:
    rng = np.random.default_rng(1)
    samples = np.minimum(rng.lognormal(-0.5, 1.0, 4096), 8.0).tolist()
    machines = Machines(places=64, train=1.0)
    ends, stale = [], []
    for eta in (0, 1, 4):
        found = streaming(samples, machines, batch=64, steps=60, eta=eta)
        ends.append(found.trained[-1])
        stale.append(float(np.mean(found.staleness)))
    assert ends == sorted(ends, reverse=True) and ends[2] < 0.5 * ends[0]
    assert stale == sorted(stale) and stale[0] == 0.0


class Stated(Failures):
    """Failures at times that are stated, by node."""

    def __init__(self, times: dict[int, list[float]], back: float) -> None:
        super().__init__(places=1, every=1.0, back=back)
        self._stated = times

    def _times(self, node: int, until: float) -> list[float]:
        return [*self._stated.get(node, []), math.inf]


def test_samples_of_a_node_that_fails_are_sampled_again_elsewhere() -> None:
    machines = Machines(places=2, train=1.0)
    alone = lagged([[4.0, 4.0]], machines, 0)
    assert alone == [5.0]
    lost = lagged([[4.0, 4.0]], machines, 0, failures=Stated({1: [3.0]}, back=2.0))
    assert lost == [9.0], "lost at 3, again on the place that is free at 4"
    back = lagged([[4.0, 4.0]], machines, 0, failures=Stated({1: [1.0]}, back=1.0))
    assert back == [7.0], "lost at 1, again on the node that is back at 2"
    idle = lagged([[1.0], [3.0, 3.0]], machines, 0, failures=Stated({1: [1.5]}, back=2.0))
    assert idle == [2.0, 7.5], "it failed without a sample, and is there from 3.5 on"


def test_rare_failures_cost_little_and_overlapping_hides_none_of_the_law() -> None:
    draws = np.random.default_rng(0)
    work = np.minimum(draws.lognormal(-0.5, 1.0, (20, 64)), 8.0).tolist()
    machines = Machines(places=64, train=1.0)

    def took(every: float, lag: int) -> float:
        failures = Failures(places=8, every=every, back=5.0, seed=1)
        return lagged(work, machines, lag, overlapped=lag > 0, failures=failures)[-1]

    for lag in (0, 1):
        whole = lagged(work, machines, lag, overlapped=lag > 0)[-1]
        assert took(1e12, lag) == whole < took(100.0, lag) < took(10.0, lag)


def test_streaming_loses_less_to_failing_machines_than_steps_that_wait() -> None:
    """A sample that is lost holds a place of its own, and no step."""
    rng = np.random.default_rng(0)
    work = np.minimum(rng.lognormal(-0.5, 1.0, (60, 256)), 8.0)
    machines = Machines(places=256, train=1.0)
    slower = []
    for failures in (None, Failures(places=8, every=100.0, back=5.0)):
        stream = streaming(work.ravel().tolist(), machines, batch=256, steps=60, eta=4, failures=failures)
        waited = lagged(work.tolist(), machines, 0, failures=failures)
        slower.append((stream.trained[-1], waited[-1]))
    assert 1.0 < slower[1][0] / slower[0][0] < slower[1][1] / slower[0][1]
