"""Laws of the choices of demonstrations, for every member on arrival."""

import json

import pytest

from posttrain.components.experts import Experts
from posttrain.types import Group, Task
from tests.builders import trajectory
from tests.conformance._members import members

every_member = pytest.mark.parametrize("experts", members(Experts))

POOL = [Task(key=f"t{i}", prompt="?", demonstrations=("shown",) * (i % 3)) for i in range(9)]


def play(experts: Experts, *, through_json: bool = False) -> list[list[tuple[str, str]]]:
    """What is shown in each of 100 steps, in which a third of the tasks fails."""
    state, shown = experts.start(), []
    for step in range(100):
        state = json.loads(json.dumps(state)) if through_json else state
        groups = [
            Group(key=task.key, trajectories=(trajectory(reward=float((i + step) % 3 > 0), of=task),))
            for i, task in enumerate(POOL)
        ]
        before = json.dumps(state)
        following, chosen = experts.choose(state, POOL, groups, seed=5)
        assert json.dumps(state) == before, "a state is changed by returning a new one"
        state = following
        shown.append([(task.key, text) for task, text in chosen])
    return shown


@every_member
def test_only_demonstrations_of_the_pool_and_as_many_as_stated_or_none(experts: Experts) -> None:
    shown = play(experts)
    assert {len(step) for step in shown} <= {0, experts.batch}
    assert any(shown)
    own = {(task.key, text) for task in POOL for text in task.demonstrations}
    assert all(pair in own for step in shown for pair in step)


@every_member
def test_the_state_is_json_and_holds_everything(experts: Experts) -> None:
    assert play(experts, through_json=True) == play(experts)
