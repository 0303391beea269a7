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


def test_notes_name_wrong_boxes_and_the_demonstration_is_another() -> None:
    tasks = Guessing(size=200, notes=2, seed=1).load()
    noted = [str(task.prompt).partition("Ball")[0].replace("Not ", "").replace(".\n", " ").split() for task in tasks]
    assert {len(named) for named in noted} == {0, 2, 4}
    for task, named in zip(tasks, noted, strict=True):
        [shown] = task.demonstrations
        assert task.answer not in named and shown.strip() not in named and len(set(named)) == len(named)
    told = [t.demonstrations[0].strip() == t.answer for t in tasks if t.domain == "told"]
    assert 0.4 < sum(told) / len(told) < 0.85, "half of them, and some of the others by chance"
    assert [t.answer for t in tasks] == [t.answer for t in Guessing(size=200, seed=1).load()], "the draws are the same"
