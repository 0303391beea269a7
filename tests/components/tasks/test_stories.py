"""Stories, answered again by playing them."""

import re

import pytest

from posttrain.components.tasks.stories import STYLES, Stories


def played(prompt: str) -> str:
    """The answer to a prompt, by going through its events."""
    *events, question = prompt.removesuffix("?\n").split(". ")
    asked, where, by, often = question.split()[0], "", "", 0
    for event in events:
        person, thing, place = event.split()
        if thing == asked:
            where, by, often = place, person, often + 1
    return {"": where, "by": by, "how often": str(often)}[question.partition(" ")[2]]


@pytest.mark.parametrize("level", range(1, 6))
def test_answers_depend_on_the_order_unless_they_are_controls(level: int) -> None:
    tasks = Stories(size=200, level=level).load()
    assert {task.domain for task in tasks} == {"ordered", "control"}
    for task in tasks:
        assert isinstance(task.prompt, str) and played(task.prompt) == task.answer
        if task.domain == "control":
            assert "shuffled" not in task.fields
        else:
            copy = task.fields["shuffled"]
            assert sorted(copy.split(". ")[:-1]) == sorted(task.prompt.split(". ")[:-1])
            assert played(copy) != task.answer


def test_copies_as_tasks_have_the_answers_of_the_stories() -> None:
    asked = [task for task in Stories(size=50).load() if "shuffled" in task.fields]
    copies = Stories(size=50, order=False).load()
    assert [c.prompt for c in copies] == [t.fields["shuffled"] for t in asked]
    assert [c.answer for c in copies] == [t.answer for t in asked]


def test_demonstrations_have_three_styles_and_the_share_of_right_answers() -> None:
    tasks = Stories(size=600, right=0.5).load()
    shown = [task.demonstrations[0] for task in tasks]
    assert all(re.fullmatch(STYLES, text) for text in shown)
    starts = [text[1] for text in shown]
    assert {start: 150 < starts.count(start) < 250 for start in "act"} == dict.fromkeys("act", True)
    right = sum(text.endswith(f"<answer>{t.answer}</answer>") for t, text in zip(tasks, shown, strict=True))
    assert 0.4 < right / len(tasks) < 0.75  # a wrong answer does not always exist
