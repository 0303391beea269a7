"""Lines are cut so that prompt and answer are the line."""

from posttrain.components.tasks.code_lines import CodeLines


def test_parts_are_the_line() -> None:
    for task in CodeLines(size=500).load():
        line = task.fields["line"]
        assert f"{task.prompt}{task.answer}" == line and task.demonstrations == (task.answer,)
        assert len(str(task.prompt)) >= 3 and len(task.answer or "") >= 2


def test_share_of_wrong_endings() -> None:
    tasks = CodeLines(size=1000, corrupted=0.3).load()
    assert 240 < sum(task.demonstrations[0] != task.answer for task in tasks) < 330
