"""Programs with guards: solutions reach their lines, and slips miss one."""

from posttrain.components.tasks.guards import Guards
from posttrain.grading.branches import instrumented, run_of


def test_solutions_reach_their_lines_by_execution() -> None:
    tasks = Guards(size=60, slips=0.0).load()
    for task in tasks:
        program = instrumented(task.fields["source"], "f", task.fields["line"])
        space: dict[str, object] = {}
        exec(program.code, space)
        inputs = [int(number) for number in task.demonstrations[0].split()]
        found = run_of(eval(program.call(inputs, 100), space), program.guards)
        assert found.reached and program.guards == int(task.domain.split()[0])
        assert task.answer == task.demonstrations[0].strip()
    assert {task.domain for task in tasks} == {f"{n} guards" for n in range(1, 6)}


def test_parents_are_the_lines_before() -> None:
    tasks = Guards(size=20).load()
    lines = {(task.fields["source"], task.fields["line"]) for task in tasks}
    for task in tasks:
        parent = task.fields.get("parent")
        assert (parent is None) == (task.domain == "1 guards")
        assert parent is None or (task.fields["source"], parent) in lines


def test_half_of_the_demonstrations_slip() -> None:
    tasks = Guards(size=200).load()
    slipped = sum(task.demonstrations[0].strip() != task.answer for task in tasks) / len(tasks)
    assert 0.4 < slipped < 0.56
