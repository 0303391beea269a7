"""What signals there can be, what they are called in the record, and who is asked for them."""

import pickle
from itertools import combinations
from typing import Any

import pytest

from posttrain.signals import (
    ADVANTAGE,
    BEHAVIOR_LOGP,
    ENTROPY,
    LOGP,
    OLD_ENTROPY,
    OLD_LOGP,
    OLD_VALUE,
    SCORE,
    VALUE,
    VALUE_TARGET,
    Signal,
    columns_in,
    logp_of,
    roles_in,
    trained_in,
)

DIVERGED = Signal("reverse_kl", of="reference", old=True)


@pytest.mark.parametrize(
    ("signal", "column"),
    [
        (LOGP, "trained_logp"),
        (OLD_LOGP, "old_logp"),
        (BEHAVIOR_LOGP, "sampled_logp"),
        (ENTROPY, "entropy"),
        (OLD_ENTROPY, "old_entropy"),
        (OLD_VALUE, "value"),
        (VALUE_TARGET, "value_target"),
        (ADVANTAGE, "advantage"),
        (logp_of("reference"), "reference_logp"),
        (Signal("entropy", of="base"), "base_entropy"),
        (Signal("score", of="progress"), "progress_score"),
        (DIVERGED, "reference_kl"),
    ],
)
def test_columns_have_the_names_that_records_have_always_had(signal: Signal, column: str) -> None:
    assert signal.column == column


def test_what_a_role_is_called_changes_nothing() -> None:
    """A role whose name ends like a signal's is that role, and no other signal has its column."""
    forward, reverse = Signal("forward_kl", of="base", old=True), Signal("reverse_kl", of="base_reverse", old=True)
    assert (reverse.of, reverse.column) == ("base_reverse", "base_reverse_kl")
    kept = [forward, reverse, DIVERGED, OLD_LOGP, logp_of("base_reverse"), Signal("logp", of="base")]
    assert all(a.column != b.column for a, b in combinations(kept, 2))


def test_the_forward_pass_that_trains_gives_what_is_differentiated() -> None:
    forward = Signal("forward_kl", of="reference")
    needs = frozenset({ENTROPY, VALUE, forward, OLD_VALUE, DIVERGED, logp_of("teacher"), ADVANTAGE})
    assert trained_in(needs) == {ENTROPY, VALUE, forward}
    assert columns_in(needs) == {OLD_VALUE, DIVERGED, logp_of("teacher")}
    assert roles_in(needs) == {"reference", "teacher"}


@pytest.mark.parametrize(
    ("signal", "asked", "itself"),
    [
        (OLD_LOGP, "guide", LOGP),
        (OLD_VALUE, "guide_critic", VALUE),
        (DIVERGED, "guide", Signal("reverse_kl", of="reference")),
        (logp_of("reference"), "reference", LOGP),
        (logp_of("old"), "guide", LOGP),
        (Signal("value", of="judge"), "judge", VALUE),
        (Signal("score", of="progress"), "progress", SCORE),
    ],
)
def test_who_is_asked_and_what_it_calls_it(signal: Signal, asked: str, itself: Signal) -> None:
    assert signal.computed_by("guide", "guide_critic") == asked
    assert signal.local == itself


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"name": "entrpy"}, "no signal 'entrpy'; did you mean 'entropy'?"),
        ({"name": "forward_kl"}, "give its role"),
        ({"name": "advantage", "of": "policy"}, "is not computed by a model"),
        ({"name": "logp", "of": "reference", "old": True}, "leave out old"),
    ],
)
def test_what_cannot_be_is_refused(made: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        Signal(**made)


def test_signals_are_values() -> None:
    assert Signal("logp", of="reference") == logp_of("reference")
    assert len({logp_of("a"), logp_of("a"), logp_of("b"), LOGP, OLD_LOGP}) == 4
    assert sorted([OLD_LOGP, ENTROPY, LOGP]) == [ENTROPY, LOGP, OLD_LOGP]
    assert pickle.loads(pickle.dumps(DIVERGED)) == DIVERGED
    assert [str(s) for s in (LOGP, OLD_VALUE, logp_of("x"), DIVERGED)] == [
        "logp",
        "value before the updates",
        "logp of 'x'",
        "reverse_kl to 'reference' before the updates",
    ]
