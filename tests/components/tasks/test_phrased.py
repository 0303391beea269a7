"""Words before steps change no step and no answer."""

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic, solve
from posttrain.components.tasks.phrased import WORDS, Phrased
from posttrain.components.tasks.wordy import Wordy
from posttrain.errors import UserError


def test_words_are_put_before_steps_and_nothing_else_changes() -> None:
    plain = Arithmetic(size=1000, terms=(3, 4))
    steps = worded = 0
    for before, after in zip(plain.load(), Phrased(tasks=plain).load(), strict=True):
        (text,) = after.demonstrations
        lines, _, answer = text.strip().rpartition("\n#### ")
        written = [line.split(" ") for line in lines.split("; ")]
        assert [line[-1] for line in written] == solve(before.fields["expression"])[0] and answer == before.answer
        assert all(len(line) == 1 or (len(line) == 2 and line[0] in WORDS) for line in written)
        steps += len(written)
        worded += sum(len(line) == 2 for line in written)
    assert abs(worded / steps - 0.3) < 4 * (0.3 * 0.7 / steps) ** 0.5
    none = Phrased(tasks=plain, share=0.0).load()
    assert [t.demonstrations for t in none] == [t.demonstrations for t in plain.load()]


def test_a_demonstration_of_another_form_is_refused() -> None:
    with pytest.raises(UserError, match="end with '#### answer'"):
        Phrased(tasks=Wordy(tasks=Arithmetic(size=30))).load()
