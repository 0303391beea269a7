"""Two rooms with a key, by hand and by a second writing."""

import asyncio
from collections import deque
from functools import cache
from random import Random

import pytest

from posttrain.components.environments.captioned import ACTIONS, COLOURS, KINDS, Captioned
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="")
WAY = "rrrddkuorrrrru"


def test_the_way() -> None:
    first, outcomes, verdict, measures = play(Captioned(), TASK, list(WAY))
    captions = [own.observation.text.split("\n")[0] for own in outcomes]
    assert first.text == "you stand in a room\nx0 y0 none shut\n" and set(captions) <= set(KINDS)
    colour = captions[5].split()[-2]
    assert captions[5] == f"you take the {colour} key" and captions[7] == f"you open the {colour} door"
    assert captions[8] == f"you walk through the {colour} door" and captions[-1] == "you reach the exit"
    assert outcomes[-1].done and verdict is not None and verdict.solved and measures == {"taken": 1.0, "opened": 1.0}


def test_the_door_needs_the_key_and_the_key_can_be_taken_again() -> None:
    _, outcomes, verdict, measures = play(Captioned(horizon=12), TASK, list("rrrdorldkkkk"))
    captions = [own.observation.text.split("\n")[0] for own in outcomes]
    assert captions[4] == "nothing happens" and captions[5].endswith("door is locked")
    assert captions[6] == "you walk left", "a locked door is no move"
    assert set(captions[-4:]) == {"nothing happens"}, "no key lies in the corner"
    _, outcomes, verdict, measures = play(Captioned(horizon=10), TASK, list("rrrddkkkkk"))
    captions = [own.observation.text.split()[1] for own in outcomes]
    assert captions[-5:] == ["take", "drop", "take", "drop", "take"] and measures == {"taken": 3.0, "opened": 0.0}
    assert outcomes[-1].done and verdict is not None and not verdict.solved


def test_smaller_rooms_have_a_shorter_way() -> None:
    _, outcomes, verdict, _ = play(Captioned(room=2), TASK, list("rddkuorrru"))
    assert outcomes[-1].observation.text == "you reach the exit\nx4 y0 key open\n"
    assert verdict is not None and verdict.solved
    assert outcomes[6].observation.text.startswith("you walk through")


def test_colours_differ_between_tasks() -> None:
    taken = {
        play(Captioned(), Task(key=str(i), prompt=""), list(WAY))[1][5].observation.text.split()[3] for i in range(40)
    }
    assert len(taken) > 5


State = tuple[int, int, tuple[int, int] | None, bool]
"""Column, row, where the key lies (None in the hand), and whether the door is open."""


@cache
def floor(room: int) -> frozenset[tuple[int, int]]:
    """Where one can stand, the door included."""
    return frozenset((c, r) for c in range(2 * room + 1) for r in range(3) if c != room or r == 1)


def second(state: State, action: str, room: int) -> tuple[State, str]:
    """The state after an action, and its caption without the colour."""
    x, y, key, is_open = state
    to = {"u": (x, y - 1), "d": (x, y + 1), "l": (x - 1, y), "r": (x + 1, y)}.get(action)
    if to is None:
        if action == "k" and key in (None, (x, y)):
            return (x, y, (x, y) if key is None else None, is_open), f"you {'drop' if key is None else 'take'} the key"
        if action == "o" and key is None and not is_open and (x, y) == (room - 1, 1):
            return (x, y, key, True), "you open the door"
        return state, "nothing happens"
    if to not in floor(room):
        return state, "you bump into a wall"
    if to == (room, 1) and not is_open:
        return state, "the door is locked"
    ways = {"u": "you walk up", "d": "you walk down", "l": "you walk left", "r": "you walk right"}
    caption = "you walk through the door" if to == (room, 1) else ways[action]
    return (*to, key, is_open), "you reach the exit" if to == (2 * room, 0) else caption


def shortest(room: int) -> int:
    """Turns of the shortest way, by search."""
    first: State = (0, 0, (room - 1, 2), False)
    waiting, seen = deque([(first, 0)]), {first}
    while waiting:
        state, turns = waiting.popleft()
        if state[:2] == (2 * room, 0):
            return turns
        new = {second(state, action, room)[0] for action in ACTIONS} - seen
        seen |= new
        waiting.extend((own, turns + 1) for own in sorted(new, key=repr))
    raise AssertionError("no way")


@pytest.mark.slow
def test_a_thousand_tasks_are_right_by_a_second_writing_and_by_search() -> None:
    best = {room: shortest(room) for room in range(2, 7)}
    assert (best[2], best[4]) == (10, 14)

    async def wander(number: int) -> None:
        room, rng = 2 + number % 5, Random(number)
        task = Task(key=f"task {number}", prompt="")
        rooms = Captioned(room=room, horizon=60).instance(task, rng.random)
        rooms.begin()
        state: State = (0, 0, (room - 1, 2), False)
        for turn in range(1, 61):
            way = await rooms.solution()
            action = way if number % 4 == 0 or rng.random() < 0.7 else rng.choice(ACTIONS)
            outcome = await rooms.step(action)
            state, expected = second(state, action, room)
            caption, seen = outcome.observation.text.rstrip("\n").split("\n")
            assert " ".join(word for word in caption.split() if word not in COLOURS) == expected
            held = "key" if state[2] is None else "here" if state[2] == state[:2] else "none"
            assert seen == f"x{state[0]} y{state[1]} {held} {'open' if state[3] else 'shut'}"
            over = expected == "you reach the exit"
            assert outcome.done == (over or turn == 60)
            if over:
                break
        assert rooms.verdict().solved == over
        assert turn == best[room] if number % 4 == 0 else turn >= best[room]

    async def everything() -> None:
        for number in range(1000):
            await wander(number)

    asyncio.run(everything())
