"""Plans: costs worked out by hand, memory by cliques, and a search that finds what trying all of them finds."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.cli import main
from posttrain.cluster.planning.calls import Call, Candidate, cost, ends, filtered
from posttrain.cluster.planning.memory import plan_bytes
from posttrain.cluster.planning.profiles import read_profile
from posttrain.cluster.planning.search import Problem, accepted, brute_force, metropolis, symmetric
from posttrain.errors import UserError


def on(devices: str, seconds: float, **more: Any) -> Candidate:
    return Candidate(devices=frozenset(map(int, devices)), seconds=seconds, **more)


def call(name: str, *candidates: Candidate, after: str = "", trains: bool = False, model: str = "") -> Call:
    return Call(name=name, model=model or name, candidates=candidates, after=tuple(after.split()), trains=trains)


def ppo(generate: Any, reference: Any, reward: Any, train: Any) -> list[Call]:
    """The four calls of a step; the actor generates and is trained."""
    return [
        call("generate", *generate, model="actor"),
        call("reference", *reference, after="generate"),
        call("reward", *reward, after="generate"),
        call("train", *train, after="reference reward", trains=True, model="actor"),
    ]


FIRST = dict.fromkeys(("generate", "reference", "reward", "train"), 0)


def test_one_iteration_on_disjoint_devices_is_the_critical_path() -> None:
    """4 + max(1, 2) + 3, where the two scores are on devices of their own."""
    calls = ppo([on("0", 4.0)], [on("1", 1.0)], [on("2", 2.0)], [on("3", 3.0)])
    assert cost(calls, FIRST, iterations=1) == 9.0


def test_calls_that_share_a_device_wait_for_one_another() -> None:
    """4 + 1 + 2 + 3: the critical path is 9, and no longer the cost."""
    calls = ppo([on("0", 4.0)], [on("1", 1.0)], [on("1", 2.0)], [on("3", 3.0)])
    assert cost(calls, FIRST, iterations=1) == 10.0
    assert ends(calls, FIRST, iterations=1) == {
        (0, "generate"): 4.0,
        (0, "reference"): 5.0,
        (0, "reward"): 7.0,
        (0, "train"): 10.0,
    }


def test_the_next_iteration_waits_for_the_weights() -> None:
    calls = ppo([on("0", 4.0)], [on("1", 1.0)], [on("2", 2.0)], [on("3", 3.0)])
    assert cost(calls, FIRST, iterations=5) == 45.0


def test_calls_of_a_model_that_is_not_trained_may_be_an_iteration_ahead() -> None:
    """Two calls of 2 and 3 seconds that only the order binds: 2 + 3 + 3 + 3."""
    calls = [call("a", on("0", 2.0)), call("b", on("1", 3.0), after="a")]
    assert cost(calls, {"a": 0, "b": 0}, iterations=3) == 11.0


def test_a_transfer_of_weights_takes_its_time_on_both_meshes() -> None:
    """From the second iteration on: train at (1, 2, 1) on 01, generate at (1, 1, 1) on 0; half a second each."""
    calls = [
        call("generate", on("0", 4.0), model="actor"),
        call("train", on("01", 3.0, layout=(1, 2, 1)), after="generate", trains=True, model="actor"),
    ]
    plan = {"generate": 0, "train": 0}
    moved = {("actor", (1, 2, 1), (1, 1, 1)): 0.5}
    assert cost(calls, plan, moved, iterations=3) == 7.0 * 3 + 0.5 * 2
    with pytest.raises(UserError, match=r"nobody measured how long the weights of 'actor' take"):
        cost(calls, plan, {}, iterations=3)


def test_a_circle_is_an_error() -> None:
    with pytest.raises(UserError, match="in a circle"):
        cost([call("a", on("0", 1.0), after="b"), call("b", on("1", 1.0), after="a")], {"a": 0, "b": 0})


def test_memory_is_that_of_the_fullest_set_of_meshes_that_overlap() -> None:
    """a on 01, b on 12, c on 23: cliques (a, b) and (b, c). 10 + 20 + max(5, 1), and 20 + 30 + max(1, 2)."""
    calls = [
        call("a", on("01", 1.0, static=10, active=5)),
        call("b", on("12", 1.0, static=20, active=1)),
        call("c", on("23", 1.0, static=30, active=2)),
    ]
    assert plan_bytes(calls, {"a": 0, "b": 0, "c": 0}) == 52


def test_two_calls_of_one_model_hold_its_weights_once() -> None:
    own = on("0", 1.0, static=10, active=5)
    assert plan_bytes([call("a", own, model="m"), call("b", own, model="m")], {"a": 0, "b": 0}) == 15


def test_candidates_that_cannot_run_are_left_out() -> None:
    wide = [Candidate(devices=frozenset(range(8)), seconds=1.0, layout=(1, 8, 1))]
    assert filtered(wide, batch=16, trains=True) == wide
    assert filtered(wide, batch=15, trains=True) == []  # 2 x 8 sequences at least
    assert filtered(wide, batch=15, trains=False) == wide
    assert (
        filtered([Candidate(devices=frozenset(range(8)), seconds=1.0, layout=(1, 8, 2))], batch=64, trains=True) == []
    )
    assert (
        filtered([Candidate(devices=frozenset(range(16)), seconds=1.0, layout=(1, 1, 16))], batch=64, trains=False)
        == []
    )
    assert filtered([on("0", 1.0, static=6, active=4)], batch=9, trains=False, capacity=10) == []
    assert [c.seconds for c in filtered([on("0", s) for s in (3.0, 1.0, 2.0)], batch=9, trains=False, most=2)] == [
        1.0,
        2.0,
    ]


def random_problem(seed: int, calls: int = 4, most: int = 4) -> Problem:
    """Calls on random meshes of four devices; one mesh is offered to all."""
    rng = np.random.default_rng(seed)

    def candidates() -> list[Candidate]:
        found = [on("0123", float(rng.integers(2, 20)), static=int(rng.integers(1, 10)), active=1)]
        for _ in range(int(rng.integers(1, most))):
            devices = "".join(str(d) for d in range(4) if rng.random() < 0.5) or "0"
            found.append(on(devices, float(rng.integers(1, 30)), static=int(rng.integers(1, 20)), active=2))
        return found

    names = [f"call{i}" for i in range(calls)]
    made = []
    for i, name in enumerate(names):
        after = " ".join(other for other in names[:i] if rng.random() < 0.5)
        made.append(
            call(name, *candidates(), after=after, trains=i == calls - 1, model="m" if i in (0, calls - 1) else "")
        )
    return Problem(calls=made, capacity=60, iterations=3)


@pytest.mark.slow
def test_metropolis_finds_the_best_plan_in_95_of_100() -> None:
    """50 random tables, 2,000 proposals each: as many optima as are required."""
    found = 0
    for seed in range(50):
        problem = random_problem(seed)
        found += metropolis(problem, seed=seed)[0].seconds == brute_force(problem).seconds
    assert found >= 48


def test_a_walk_repeats_by_its_seed() -> None:
    problem = random_problem(3)
    assert metropolis(problem, seed=1, proposals=60) == metropolis(problem, seed=1, proposals=60)


def test_longer_plans_are_accepted_by_both_rules() -> None:
    """From 10 s: 1 % more by exp(-0.5); released: 0.09 s more always, 0.25 s, two whole tenths, by exp(-0.002)."""
    assert accepted(10.0, 10.1, "relative", 0.5) == pytest.approx(math.exp(-0.5))
    assert accepted(10.0, 10.09, "released", 0.5) == 1.0
    assert accepted(10.0, 10.25, "released", 0.5) == pytest.approx(math.exp(-0.002))
    assert accepted(10.0, 9.0, "released", 0.5) == accepted(10.0, 9.0, "relative", 0.5) == 1.0
    problem = random_problem(3)
    found = metropolis(problem, seed=0, accept="released")[0]
    assert found.seconds == brute_force(problem).seconds


def test_a_plan_that_does_not_fit_is_never_the_answer() -> None:
    """The fastest candidate of each call together takes 20; the walk starts there."""
    calls = [
        call("a", on("0", 1.0, static=10), on("1", 5.0, static=10)),
        call("b", on("0", 1.0, static=10), on("2", 9.0, static=10), after="a"),
    ]
    found = metropolis(Problem(calls=calls, capacity=15, iterations=1), seed=0, proposals=50)
    assert found[0].seconds == 6.0
    assert all(item.bytes <= 15 for item in found)
    with pytest.raises(UserError, match="no plan fits in 5 bytes a device"):
        brute_force(Problem(calls=calls, capacity=5))


def test_the_joint_plan_beats_the_fastest_of_each_and_the_symmetric_one() -> None:
    """Generate is fastest on all devices, train prefers half; the scores go in parallel on the halves.

    Fastest of each: 4 + 3 + 3 + 4 = 14 (both scores on 01). Symmetric, all on 0123: 4 + 2.9 + 2.9 + 6 = 15.8.
    Joint: 4 + 3 + 4 = 11.
    """
    calls = ppo(
        [on("0123", 4.0), on("01", 7.0)],
        [on("01", 2.8), on("23", 3.0), on("0123", 2.9)],
        [on("01", 2.8), on("23", 3.0), on("0123", 2.9)],
        [on("0123", 6.0), on("01", 4.0)],
    )
    problem = Problem(calls=calls, iterations=1)
    fastest = {"generate": 0, "reference": 0, "reward": 0, "train": 1}
    assert cost(calls, fastest, iterations=1) == pytest.approx(13.6)
    assert symmetric(problem).seconds == pytest.approx(15.8)
    best = metropolis(problem, seed=0, proposals=200)[0]
    assert best.seconds == brute_force(problem).seconds == pytest.approx(11.0)


SCORES = [
    {"devices": [0, 1], "seconds": 2.8},
    {"devices": [2, 3], "seconds": 3.0},
    {"devices": [0, 1, 2, 3], "seconds": 2.9},
]
GENERATE = [{"devices": [0, 1, 2, 3], "seconds": 4.0, "static": 10, "active": 5}, {"devices": [0, 1], "seconds": 7.0}]
TRAIN = [{"devices": [0, 1, 2, 3], "seconds": 6.0}, {"devices": [0, 1], "seconds": 4.0}]
CALLS: list[dict[str, Any]] = [
    {"name": "generate", "model": "actor", "candidates": GENERATE},
    {"name": "reference", "model": "reference", "after": ["generate"], "candidates": SCORES},
    {"name": "reward", "model": "reward", "after": ["generate"], "candidates": SCORES},
    {"name": "train", "model": "actor", "trains": True, "after": ["reference", "reward"], "candidates": TRAIN},
]
PROFILE = {"iterations": 1, "capacity": 100, "calls": CALLS}


def test_the_command_prints_the_plan_that_beats_the_symmetric_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Devices 2 and 3 work 4 + 3 of 11 seconds, 0 and 1 work 4 + 2.8 + 4."""
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILE))
    assert main(["cluster", "plan", str(path), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["plans"], found["tried"]) == (36, "all")
    assert found["best"][0]["seconds"] == pytest.approx(11.0)
    assert found["symmetric"]["seconds"] == pytest.approx(15.8)
    assert found["idle"] == pytest.approx({"0": 0.2 / 11, "1": 0.2 / 11, "2": 4 / 11, "3": 4 / 11})
    assert main(["cluster", "plan", str(path)]) == 0
    assert "the same devices for all calls: 15.8 s" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calls": []}, "a profile has calls"),
        ({"calls": [{"name": "a", "model": "m", "candidates": []}]}, "the call 'a' has no candidate"),
        ({"calls": [{**CALLS[0], "after": ["b"]}]}, "comes after 'b', which is no call"),
        ({"calls": 3}, "is no profile of calls"),
    ],
)
def test_what_is_no_profile_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**PROFILE, **change}))
    with pytest.raises(UserError, match=message):
        read_profile(path)


@pytest.mark.slow
def test_six_calls_with_eight_candidates_come_within_two_percent() -> None:
    for seed in range(2):
        problem = random_problem(100 + seed, calls=6, most=5)
        best = brute_force(problem).seconds
        assert metropolis(problem, seed=seed, proposals=2000)[0].seconds <= 1.02 * best
