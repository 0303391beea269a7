import asyncio

import pytest

from posttrain.components.pairings import Rollouts
from posttrain.components.pairings.fields_differ import FieldsDiffer
from posttrain.grading.labels import first_difference, read_record
from posttrain.types import Task
from tests.components.pairings.given import Drawing, pair, rollout, texts
from tests.components.search.lines import never

REFERENCE = "says: b\nact: 3\nstate: x\nNearly. Try the tens."
TASK = Task(key="t", prompt="P:", demonstrations=(REFERENCE,))
RULE = FieldsDiffer(fields=("says", "act", "state"), most=9)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("no record", "unreadable"),
        ("{broken", "unreadable"),
        ("[1]", "unreadable"),
        ("says: b\nact: 3", "no state"),
        ("says: b\nact:\nstate: x", "no act"),
        ("says: a\nact: 9\nstate: x", "says"),
        ("says: b\nact: 9\nstate: y", "act"),
        ("says: b\nact: 3\nstate: y", "state"),
        ("says: b\nact: 3\nstate: x\nAnother text.", None),
        ('{"Says": "b", "act": 3, "state": " x "}', None),
        ('{"says": "b", "act": 3, "state": null}', "no state"),
    ],
)
def test_the_first_that_differs_in_this_order(text: str, what: str | None) -> None:
    assert first_difference(text, REFERENCE, ("says", "act", "state")) == what
    found = pair(RULE, (text, 0.0), task=TASK)
    assert texts(found) == ([] if what is None else [(REFERENCE, text)])
    assert found.reason == ("all fields agree" if what is None else "")
    assert what is None or found.pairs[0].fields["differs"] == what


def test_a_repeated_field_has_its_first_value_and_a_colon_may_be_in_a_value() -> None:
    assert read_record("a: 1\na: 2\nb c: x: y") == {"a": "1", "b c": "x: y"}


def test_one_pair_unless_more_are_wanted_and_equal_texts_once() -> None:
    wrong = ("says: a\nact: 3\nstate: x", "says: b\nact: 1\nstate: x")
    answers = [(wrong[0], 0.0), (wrong[0], 0.0), (REFERENCE, 1.0), (wrong[1], 0.0)]
    assert texts(pair(FieldsDiffer(fields=("says", "act", "state")), *answers, task=TASK)) == [(REFERENCE, wrong[0])]
    assert [rejected for _, rejected in texts(pair(RULE, *answers, task=TASK))] == list(wrong)


@pytest.mark.parametrize("shown", [(), ("says: b\nact: 3",), ("plain",)])
def test_a_reference_that_lacks_a_field_gives_none(shown: tuple[str, ...]) -> None:
    task = Task(key="t", prompt="P:", demonstrations=shown)
    assert pair(RULE, ("x", 0.0), task=task).reason == "the reference lacks a field"


def test_an_answer_that_was_cut_is_rejected_without_an_end() -> None:
    cut = rollout(TASK, "says: a\nact", 0.0, 0, "length")
    given = Rollouts(task=TASK, trajectories=(cut,), sampler=Drawing(), scorer=never)  # type: ignore[arg-type]
    [one] = asyncio.run(RULE.pair(given)).pairs
    assert one.fields["cut"] is True and one.rejected == "says: a\nact"
