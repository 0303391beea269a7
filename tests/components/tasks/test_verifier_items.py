"""Items for a verifier, keys, and first sentences as a NO."""

import pytest
from pydantic import ValidationError

from posttrain.components.tasks.answered_sums import AnsweredSums
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.first_sentences import FirstSentences
from posttrain.components.tasks.verifier_items import VerifierItems
from posttrain.errors import UserError
from posttrain.grading.sentences import KEYS, first_sentence


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("We add. 4+7=11", "We add."),
        ("Solution: 11", "Solution:"),
        ("3.5 is it. So", "3.5 is it."),
        (" one\ntwo. three", "one"),
        ("11", "11"),
        ("Why? Because", "Why?"),
        ("", ""),
    ],
)
def test_first_sentences(text: str, first: str) -> None:
    assert first_sentence(text) == first


def test_items_have_the_response_once_and_keys_are_a_no() -> None:
    source = AnsweredSums(size=10)
    items = VerifierItems(tasks=source, keys=KEYS).load()
    assert len(items) == 10 * 12 and len(KEYS) == 10
    for item in items:
        start, end = item.fields["span"]
        assert isinstance(item.prompt, str) and item.prompt[start:end] == item.fields["response"]
        assert item.answer == ("YES" if item.domain == "right" else "NO") == item.demonstrations[0].strip()
    assert {item.domain for item in items} == {"right", "wrong", *(f"key {key!r}" for key in KEYS)}


@pytest.mark.parametrize("marks", [False, True])
def test_first_sentences_are_added_and_everything_else_stays(marks: bool) -> None:
    items = VerifierItems(tasks=AnsweredSums(size=400), marks=marks)
    loaded, own = FirstSentences(tasks=items).load(), items.load()
    assert list(loaded[: len(own)]) == list(own)
    added = loaded[len(own) :]
    assert 60 < len(added) < 140 and {item.answer for item in added} == {"NO"}
    for item in added:
        sentence = item.fields["response"]
        assert str(item.prompt).count(sentence) >= 1 and item.fields["reference"] not in sentence
        assert item.fields["worked"].startswith(sentence) and sentence != item.fields["worked"]
        assert ("<<<BEGIN" in str(item.prompt)) == marks


def test_answers_that_stand_at_the_start_are_skipped_and_counted() -> None:
    items = VerifierItems(tasks=AnsweredSums(size=60))
    source = FirstSentences(tasks=items, share=1.0)
    skipped = 2 * 60 - (len(source.load()) - 2 * 60)
    # "The task is 1+45." contains the reference 46 never, but "We add 1 and 10." contains no 11 either: by hand
    expected = sum(
        str(a) in first_sentence(item.fields["worked"]) for item in items.load() for a in [item.fields["reference"]]
    )
    assert skipped == expected and f"({skipped} skipped" in source.describe()


def test_what_is_no_item_is_refused() -> None:
    with pytest.raises(UserError, match="verifier_items"):
        FirstSentences(tasks=Arithmetic(size=10), share=1.0).load()
    with pytest.raises(UserError, match="completion and rating"):
        VerifierItems(tasks=Arithmetic(size=10)).load()
    with pytest.raises(ValidationError, match="once"):
        VerifierItems(tasks=AnsweredSums(), template="{question} {answer}")
