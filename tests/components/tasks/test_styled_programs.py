"""Programs in several forms."""

import subprocess

import pytest

from posttrain.components.tasks.styled_programs import FORMS, StyledPrograms, value, written
from posttrain.datasets.coding_preferences import PRINCIPLES, RUBRICS

TERMS = ("a", "-", "3", "*", "b")


def test_preferences_take_turns_and_prompts_with_a_principle_have_its_form() -> None:
    tasks = StyledPrograms(size=40, shown=0.5).load()
    assert [task.domain for task in tasks[:6]] == [*RUBRICS, "instruction"] and list(FORMS) == list(RUBRICS)
    shown = [task for task in tasks if not str(task.prompt).startswith("Bash: ")]
    assert 10 < len(shown) < 30
    assert all(str(task.prompt).partition("\n")[0] in task.fields["principles"] for task in shown)
    bare = [task.demonstrations[0] for task in tasks if task not in shown]
    assert len({text.partition("echo")[0] for text in bare}) > 3, "forms are drawn"
    assert set(PRINCIPLES) == set(RUBRICS)


def test_values_by_hand() -> None:
    assert value(TERMS, 20, 5) == 5 and value(("a", "*", "3", "-", "b"), 20, 5) == 55
    assert value(("a", "-", "b", "+", "2"), 20, 5) == 17


@pytest.mark.slow
def test_every_form_but_the_incomplete_one_prints_the_value() -> None:
    for forms in FORMS.values():
        for form in forms.values():
            text = written(TERMS, form)
            done = subprocess.run(["bash", "-c", text], input="20 5\n", capture_output=True, text=True, check=True)
            assert (int(done.stdout) == 5) != form.dropped, text
