"""Which answers check themselves."""

from posttrain.evaluation.reflection import reflective


def test_by_words() -> None:
    texts = ["Wait, that is 7.", "let me just verify", "I double-check", "awaited recaps", "2+2=4"]
    assert reflective(texts) == 0.6 and reflective([]) == 0.0
