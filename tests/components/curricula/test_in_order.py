from posttrain.components.curricula.in_order import InOrder
from posttrain.types import Task

TASKS = [Task(key=f"t{i}", prompt="p") for i in range(6)]


def test_the_order_is_kept_and_begins_again() -> None:
    curriculum = InOrder()
    state, first = curriculum.select(curriculum.start(), TASKS, 4, seed=3, step=0)
    state, second = curriculum.select(state, TASKS, 4, seed=3, step=1)
    assert [pick.task.key for pick in (*first, *second)] == ["t0", "t1", "t2", "t3", "t4", "t5", "t0", "t1"]
