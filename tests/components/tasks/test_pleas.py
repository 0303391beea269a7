"""Logged calls and better turns."""

from posttrain.components.environments.donor import PLEAS as SUITED
from posttrain.components.environments.donor import kind_of
from posttrain.components.tasks.pleas import PLEAS, SHOWN, Pleas


def test_a_logged_call_is_what_the_donor_of_its_task_answers() -> None:
    tasks = Pleas(size=200).load()
    for task in tasks:
        [episode] = task.episodes
        kind = kind_of(task)
        assert episode[2].text == SHOWN[kind]
        suits = episode[3].text == f"{SUITED[kind]}\n"
        assert task.fields["rewards"] == [float(suits)] and task.fields["closing"] == ["yes\n" if suits else "no\n"]
    assert 0.05 < sum(task.fields["rewards"][0] for task in tasks) / 200 < 0.15


def test_a_better_turn_uses_what_came_after_it() -> None:
    for task in Pleas(size=100, which="hindsight").load():
        assert isinstance(task.prompt, str)
        whole, prefix = task.prompt.split("---\n")
        [[turn]] = task.episodes
        if turn.text in PLEAS:
            texts = whole.splitlines(keepends=True)
            assert (turn.text == texts[3]) == (texts[4] == "yes\n") and prefix == "".join(texts[:3]) + "better: "
        else:
            assert prefix == "a donor\nbetter: " and turn.text not in whole
