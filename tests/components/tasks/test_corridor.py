from posttrain.components.environments.corridor import Corridor as Environment
from posttrain.components.tasks.corridor import Corridor


def test_the_prompt_states_what_the_environment_is_made_from() -> None:
    tasks = Corridor(size=50, cells=(3, 6)).load()
    Environment().check(tasks)
    assert {task.fields["cells"] for task in tasks} == {3, 4, 5, 6}
    assert all(task.prompt.endswith(f", {task.fields['cells']} cells.\n") for task in tasks)  # type: ignore[union-attr]
    assert len({task.prompt for task in tasks}) == 50
