import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.spelt import Spelt, _spelt
from posttrain.components.tasks.word_problems import WordProblems
from posttrain.errors import UserError
from posttrain.settings.two_families import two_families
from posttrain.types import Task


def test_answers_are_spelt_and_worked_steps_are_not() -> None:
    plain = Arithmetic(size=30, terms=(2, 2), digits=(2, 2), operators="+")
    for before, after in zip(plain.load(), Spelt(tasks=plain).load(), strict=True):
        assert isinstance(before.prompt, str) and before.answer is not None and after.answer is not None
        assert after.prompt == "L" + before.prompt[1:]
        assert [ord(letter) - ord("a") for letter in after.answer] == [int(digit) for digit in before.answer]
        step = before.demonstrations[0].partition("\n")[0]
        assert after.demonstrations == (f"{step}\n#### {after.answer}",)
        assert (after.key, after.domain, after.fields) == (before.key, before.domain, before.fields)


def test_129_is_bcj() -> None:
    task = Task(key="k", prompt="Q: 49+80\nA:", answer="129", demonstrations=(" 49+80=129\n#### 129", "-129"))
    spelt = _spelt(task)
    assert (spelt.prompt, spelt.answer) == ("L: 49+80\nA:", "bcj")
    assert spelt.demonstrations == (" 49+80=129\n#### bcj", "-bcj")


def test_other_prompts_are_refused() -> None:
    with pytest.raises(UserError, match="begins with 'Q:'"):
        Spelt(tasks=WordProblems(size=3)).load()


def test_the_setting_has_as_many_tasks_of_each_family() -> None:
    tasks = two_families().tasks.load()
    assert len(tasks) == 2000
    assert [task.domain for task in tasks[:4]].count("letters") == 2
    assert {task.domain for task in tasks} == {"sums", "letters"}
