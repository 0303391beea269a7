"""Files of tests are shared out as xdist does, with what has ended forgotten."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.scheduling import Files

TESTS = [f"tests/test_{file}.py::test_{number}" for file in range(12) for number in range(1 + file % 4)]


class Process:
    """A process that runs what it is given, in order."""

    def __init__(self, name: str) -> None:
        self.gateway = type("Gateway", (), {"id": name})()
        self.given: list[int] = []
        self.done = 0
        self.shutting_down = False

    def send_runtest_some(self, places: Sequence[int]) -> None:
        self.given += places

    def shutdown(self) -> None:
        self.shutting_down = True


def began(kind: type[LoadFileScheduling], config: Any) -> tuple[LoadFileScheduling, list[Process]]:
    found, processes = kind(config), [Process("one"), Process("two")]
    for process in processes:
        found.add_node(process)  # type: ignore[arg-type]
    for process in processes:
        found.add_node_collection(process, TESTS)  # type: ignore[arg-type]
    found.schedule()
    return found, processes


def finish(found: LoadFileScheduling, processes: Sequence[Process], seed: int, most: int) -> None:
    """Have processes, drawn from `seed`, end tests until none has one, at most `most` tests."""
    rng = random.Random(seed)
    for _ in range(most):
        waiting = [process for process in processes if process.done < len(process.given)]
        if not waiting:
            return
        process = rng.choice(waiting)
        process.done += 1
        found.mark_test_complete(process, process.given[process.done - 1])  # type: ignore[arg-type]


@pytest.fixture
def config() -> Any:
    option = type("Option", (), {"loadscopereorder": False})()
    return type("Config", (), {"option": option, "getvalue": lambda self, name: ["popen"] * 2})()


@pytest.mark.parametrize("seed", range(8))
def test_processes_get_what_xdist_gives_them(config: Any, seed: int) -> None:
    runs = []
    for kind in (LoadFileScheduling, Files):
        found, processes = began(kind, config)
        finish(found, processes, seed, 1000)
        assert found.tests_finished and not found.has_pending
        assert all(process.shutting_down for process in processes)
        runs.append([process.given for process in processes])
    assert runs[0] == runs[1]
    assert sorted(place for given in runs[1] for place in given) == list(range(len(TESTS)))


def test_what_has_ended_is_forgotten(config: Any) -> None:
    found, processes = began(Files, config)
    finish(found, processes, 0, 20)
    left = [test for files in found.assigned_work.values() for tests in files.values() for test in tests]
    ended = {TESTS[place] for process in processes for place in process.given[: process.done]}
    assert len(ended) == 20 and not ended & set(left)
    assert all(tests for files in found.assigned_work.values() for tests in files.values()), "a file with its last test"


def test_what_a_lost_process_had_left_goes_to_the_others(config: Any) -> None:
    found, processes = began(Files, config)
    finish(found, processes, 0, 10)
    lost, other = processes
    ended = [TESTS[place] for place in lost.given[: lost.done]]
    assert found.remove_node(lost) == TESTS[lost.given[lost.done]]  # type: ignore[arg-type]
    finish(found, [other], 0, 1000)
    assert {*ended, *(TESTS[place] for place in other.given)} == set(TESTS)
    assert not {TESTS[place] for place in other.given} & set(ended), "no test that has ended runs again"
