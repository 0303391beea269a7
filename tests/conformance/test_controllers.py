"""Laws of the controllers, for every member on arrival."""

import json
import math

import pytest

from posttrain.components.controllers import Controller, Knobs, Measured
from tests.conformance._members import members

every_member = pytest.mark.parametrize("controller", members(Controller))

FIRST = Knobs(clips=[0.1, 0.5, 1.0], noise=1.5)


def measured(interval: int) -> Measured:
    return Measured(within=[0.9, 0.1 * interval, -0.2], loss=5.0 - 0.3 * interval, spent=0.1 * interval, cost=0.1)


def play(controller: Controller, *, through_json: bool = False) -> list[Knobs]:
    """The settings of ten intervals."""
    state, found = controller.start(FIRST, 3), []
    for interval in range(10):
        state = json.loads(json.dumps(state, allow_nan=False)) if through_json else state
        found.append(controller.knobs(state, FIRST))
        state = controller.observe(state, measured(interval))
    return found


@every_member
def test_settings_are_finite_and_above_zero(controller: Controller) -> None:
    for knobs in play(controller):
        assert len(knobs.clips) == 3
        assert all(math.isfinite(value) and value > 0 for value in (*knobs.clips, knobs.noise))


@every_member
def test_the_first_interval_has_the_recipes_settings(controller: Controller) -> None:
    knobs = play(controller)[0]
    assert (list(knobs.clips), knobs.noise) == (list(FIRST.clips), FIRST.noise)


@every_member
def test_the_state_is_json_and_holds_everything(controller: Controller) -> None:
    assert play(controller, through_json=True) == play(controller)


@every_member
def test_one_that_reads_nothing_changes_nothing(controller: Controller) -> None:
    assert controller.reads == (len({str(knobs) for knobs in play(controller)}) > 1)


@every_member
def test_nothing_is_written_into_a_state(controller: Controller) -> None:
    state = controller.start(FIRST, 0)
    for interval in range(6):
        before = json.dumps(state)
        after = controller.observe(state, measured(interval))
        controller.knobs(state, FIRST)
        assert json.dumps(state) == before
        state = after
