"""Tutors' records: labels by hand, and what a pair and a rewritten turn differ in."""

from posttrain.components.tasks.tutoring import FIELDS, Tutoring, _task
from posttrain.grading.labels import first_difference, read_record


def test_labels_by_hand() -> None:
    cases = {
        ("right", 1): ("b", "3", "y"),
        ("right", 3): ("b", "3", "y"),
        ("wrong", 1): ("a", "1", "w"),
        ("wrong", 2): ("a", "1", "x"),
        ("wrong", 3): ("a", "2", "y"),
        ("partly", 3): ("c", "2", "y"),
        ("off-topic", 3): ("e", "12", "x"),
        ("question", 3): ("f", "1", "x"),
    }
    for (kind, attempt), labels in cases.items():
        task = _task((3, 4, attempt, kind, "8"))
        record = read_record(task.answer or "")
        assert record is not None and tuple(record[name] for name in FIELDS) == labels, (kind, attempt)
    assert _task((3, 4, 2, "partly", "8")).answer == (
        "\nevaluation: c\naction: 1\nstate: x\nproblem: 3+4\ntext: count on from 3"
    )


def test_a_pair_differs_in_one_label_and_a_rewritten_turn_gives_the_solution() -> None:
    tasks = Tutoring(size=60).load()
    assert len({task.prompt for task in tasks}) == 60
    for task in tasks:
        [pair] = task.preferences
        ours, theirs = read_record(pair.rejected), read_record(pair.chosen)
        assert ours is not None and theirs is not None and pair.chosen == task.answer
        differs = [name for name in FIELDS if ours[name] != theirs[name]]
        assert differs == [first_difference(pair.rejected, pair.chosen, FIELDS)]
        assert ("told" in task.fields) == (theirs["action"] == "1")
        if "told" in task.fields:
            told = read_record(task.fields["told"])
            assert told is not None and (told["action"], told["state"]) == ("2", "y") and "it is" in told["text"]
