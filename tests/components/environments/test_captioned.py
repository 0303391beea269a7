"""Two rooms with a key, by hand."""

from posttrain.components.environments.captioned import KINDS, Captioned
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
