"""Turns between a parent and its children, and every way in which a child can fail."""

import sys
import textwrap
from pathlib import Path

import pytest

import posttrain
from posttrain.errors import RunFailed
from posttrain.kernels.memory import peak_memory
from posttrain.runs.speed.benchmark import Turn, in_turns
from posttrain.runs.speed.children import Child, ChildFailed

SOURCE = str(Path(posttrain.__file__).parents[1])
SERVES = """
    from posttrain.runs.speed.children import Enough, Line, Steps
    line = Line()
    print("what libraries print is no answer")
    asked = line.next()
    steps, turn = Steps(line), 0
    try:
        steps.ready(said=asked["name"])
        while True:
            turn += 1
            try:
                steps.done(turn=turn)
            except Exception:
                pass  # a trainer that catches everything
    except Enough:
        line.goodbye()
"""


def child(code: str, limit: float = 60.0) -> Child:
    return Child("the child", [sys.executable, "-c", textwrap.dedent(code)], {"PYTHONPATH": SOURCE}, limit)


@pytest.mark.slow
def test_turns_and_the_end() -> None:
    one = child(SERVES)
    ready = one.start(name="x")
    assert ready["said"] == "x" and ready["seconds_to_ready"] > 0
    first, second = one.request(do="turn"), one.request(do="turn")
    assert (first["turn"], second["turn"]) == (1, 2) and 0 <= second["seconds"] < 60
    assert one.end()["peak_memory_bytes"] > 2**20


@pytest.mark.slow
def test_a_child_whose_parent_is_gone_ends() -> None:
    one = child(SERVES)
    one.start(name="x")
    assert one._process.stdin is not None
    one._process.stdin.close()
    assert one._process.wait(60) == 0
    one.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.exit('no such thing')", "the child: ended\nno such thing"),
        ("import json; input(); print(json.dumps({'error': 'not today'}))", "the child: not today"),
        ("import time; time.sleep(60)", "the child: has not answered for 1 s"),
    ],
)
def test_a_child_that_fails_states_why(code: str, said: str) -> None:
    one = child(code, limit=1.0)
    with pytest.raises(ChildFailed) as failed:
        while True:
            one.start(name="x")
    one.close()
    assert str(failed.value) == said


def test_cases_take_turns() -> None:
    order: list[str] = []

    def turn(name: str) -> Turn:
        def take() -> dict[str, object]:
            order.append(name)
            return {"seconds": 1.0, "number": len(order)}

        return Turn(figure={"name": name}, take=take)

    said: list[str] = []
    taken = in_turns([turn("a"), turn("b")], rounds=2, warm_up=1, say=said.append)
    assert order == ["a", "b"] * 3
    assert [[result["number"] for result in case.rounds] for case in taken] == [[3, 5], [4, 6]]
    assert said == ["warm-up: 1.00 1.00 s", "round 1 of 2: 1.00 1.00 s", "round 2 of 2: 1.00 1.00 s"]


def test_a_turn_that_fails_is_an_error_of_the_run() -> None:
    def take() -> dict[str, object]:
        raise ChildFailed("x: ended")

    with pytest.raises(RunFailed, match="x: ended"):
        in_turns([Turn(figure={}, take=take)], rounds=1, warm_up=0, say=print)


def test_memory_is_that_of_this_process() -> None:
    assert 2**20 < peak_memory() < 2**40
