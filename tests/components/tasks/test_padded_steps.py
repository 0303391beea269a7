"""Trivial steps are true, add nothing, and are as many as drawn."""

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic, solve
from posttrain.components.tasks.padded_steps import PaddedSteps
from posttrain.components.tasks.phrased import Phrased
from posttrain.components.tasks.sentences import UNWANTED, WORDS, Sentences
from posttrain.components.tasks.spelt import Spelt
from posttrain.errors import UserError
from posttrain.grading.expressions import evaluate


def test_steps_stay_and_trivial_ones_follow_them() -> None:
    plain = Arithmetic(size=1000, terms=(3, 4))
    trivial = steps = 0
    for before, after in zip(plain.load(), PaddedSteps(tasks=plain).load(), strict=True):
        (text,) = after.demonstrations
        lines, _, answer = text.strip().rpartition("\n#### ")
        written = lines.split("; ")
        assert all(evaluate(line.split("=")[0]) == evaluate(line.split("=")[1]) for line in written)
        own = [
            line
            for line in written
            if not line.split("=")[0].endswith("+0") or line in solve(before.fields["expression"])[0]
        ]
        assert set(solve(before.fields["expression"])[0]) <= set(own) and answer == before.answer
        trivial += len(written) - len(solve(before.fields["expression"])[0])
        steps += len(solve(before.fields["expression"])[0])
    assert 0.9 < trivial / steps < 1.1, "0, 1 or 2 after each, equally likely"
    assert [t.demonstrations for t in PaddedSteps(tasks=plain, most=0).load()] == [
        t.demonstrations for t in plain.load()
    ]


def test_a_demonstration_of_another_form_is_refused() -> None:
    for source in (Sentences(size=8), Phrased(tasks=Sentences(size=8)), Spelt(tasks=Sentences(size=8))):
        with pytest.raises(UserError):
            PaddedSteps(tasks=source).load()


def test_sentences_are_of_the_words_and_the_unwanted_one_is_in_its_share() -> None:
    bad = count = 0
    for task in Sentences(size=1000).load():
        text = str(task.prompt) + task.demonstrations[0]
        for word in sorted(WORDS, key=len, reverse=True):
            text = text.replace(word, "")
        assert text == ""
        sentences = task.demonstrations[0].split(".")[:-1]
        assert len(sentences) == 2 and all(a in s for a, s in zip(task.answer.split(), sentences, strict=True))  # type: ignore[union-attr]
        bad += sum(UNWANTED in sentence for sentence in sentences)
        count += len(sentences)
    assert abs(bad / count - 0.3) < 4 * (0.3 * 0.7 / count) ** 0.5
