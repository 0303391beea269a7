import pytest

from posttrain.components.environments.corridor import Corridor
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.environments.playing import play, verdict_of

FIVE = Task(key="five", prompt="Corridor 1, 5 cells.\n", fields={"cells": 5})


def test_four_steps_forward_leave_five_cells() -> None:
    first, outcomes, verdict, _ = play(Corridor(), FIVE, ["forward"] * 9)
    assert (first.text, first.state_key) == ("At 1.", "0")
    assert [o.observation.text for o in outcomes] == ["At 2.", "At 3.", "At 4.", "At 5."]
    assert [o.done for o in outcomes] == [False, False, False, True]
    assert [o.reward for o in outcomes] == [0, 0, 0, 0]
    assert verdict is not None and (verdict.value, verdict.solved) == (1.0, True)


def test_the_horizon_ends_it_without_reward() -> None:
    _, outcomes, verdict, _ = play(Corridor(horizon=3), FIVE, ["f", "s", "b", "f"])
    assert [o.observation.state_key for o in outcomes] == ["1", "1", "0"]
    assert outcomes[-1].done
    assert verdict is not None and (verdict.value, verdict.solved) == (0.0, False)
    assert verdict_of(Corridor(horizon=4), FIVE, "ffff").solved, "the last action may be the one that leaves"


def test_there_is_a_wall_before_the_first_cell() -> None:
    _, outcomes, _, _ = play(Corridor(), FIVE, ["back", "back", "forward"])
    assert [o.observation.state_key for o in outcomes] == ["0", "0", "1"]


@pytest.mark.parametrize("action", ["", "  ", "run", "forwards", "x", "forward back"])
def test_other_words_cost_and_change_nothing_but_the_time(action: str) -> None:
    _, (outcome,), _, _ = play(Corridor(invalid_penalty=0.25), FIVE, [action])
    assert (outcome.valid, outcome.reward, outcome.observation.state_key) == (False, -0.25, "0")
    assert play(Corridor(horizon=1), FIVE, [action])[1][0].done


def test_actions_may_be_abbreviated_and_in_any_case() -> None:
    _, outcomes, _, _ = play(Corridor(), FIVE, [" Forward\n", "F", "st", "BACK"])
    assert all(o.valid for o in outcomes)
    assert [o.observation.state_key for o in outcomes] == ["1", "2", "2", "1"]


@pytest.mark.parametrize("cells", [None, "5", 1, True, 2.5])
def test_a_task_without_cells_is_refused(cells: object) -> None:
    with pytest.raises(UserError, match=r"task odd is no corridor.*'cells'"):
        Corridor().check([FIVE, Task(key="odd", prompt="?", fields={"cells": cells})])
