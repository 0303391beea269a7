"""Ciphers: one table for all sentences, both ways."""

from posttrain.components.rewards.translated import translation_of
from posttrain.components.tasks.ciphers import Ciphers


def test_one_permutation_holds_for_all_sentences() -> None:
    table: dict[str, str] = {}
    for task in Ciphers(size=300).load():
        source, answer = str(task.prompt).partition("\n")[0].split(), (task.answer or "").split()
        assert 6 <= len(source) == len(answer) <= 12
        for word, other in zip(source, answer, strict=True):
            assert table.setdefault(word, other) == other
    assert len(table) == 8 and set(table) == set(table.values())
    other = Ciphers(size=1, table=1).load()[0]
    assert any(table[a] != b for a, b in zip(str(other.prompt).split(), str(other.answer).split(), strict=False))


def test_a_share_of_demonstrations_lacks_a_tag() -> None:
    shown = [task.demonstrations[0] for task in Ciphers(size=300, broken=0.5).load()]
    assert 0.4 < sum(translation_of(text) is None for text in shown) / 300 < 0.6
    assert all(translation_of(t.demonstrations[0]) == t.answer for t in Ciphers(size=50).load())
