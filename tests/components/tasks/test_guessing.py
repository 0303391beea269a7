from collections import Counter

from posttrain.components.tasks.guessing import Guessing


def test_half_of_the_questions_do_not_say_which_box_it_is() -> None:
    tasks = Guessing(size=400, options=3).load()
    assert 160 < sum(task.domain == "hidden" for task in tasks) < 240
    for task in tasks:
        assert isinstance(task.prompt, str)
        assert (f"in {task.answer}." in task.prompt) == (task.domain == "told")
    assert set(Counter(task.answer for task in tasks)) == {"a", "b", "c"}
    assert len({task.prompt for task in tasks}) == 400


def test_all_or_none_may_be_hidden() -> None:
    assert {t.domain for t in Guessing(size=20, hidden=1.0).load()} == {"hidden"}
    assert {t.domain for t in Guessing(size=20, hidden=0.0).load()} == {"told"}
