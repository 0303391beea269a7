"""Translations: the form, the sheet's values, BLEU of few words, and copies of the source."""

import pytest
from pydantic import ValidationError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rewards.translated import Translated, translation_of
from posttrain.components.rewards.word_overlap import WordOverlap
from posttrain.errors import UserError
from posttrain.types import Group, Score, Task
from tests.components.rewards.judging import judge

ITEM = Task(key="k", prompt="ba de gi ko mu", answer="the dog sees a cat", fields={"source": "ba de gi ko mu"})
BAG = WordOverlap()


def said(text: str) -> str:
    return f"<think>x</think><translate>{text}</translate>"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (said(" a b "), "a b"),
        ("so " + said("a") + " end", "a"),
        (said(""), ""),
        ("<think>x<translate>a</translate>", None),
        ("<think>x</think><think></think><translate>a</translate>", None),
        ("<translate>a</translate><think>x</think>", None),
        ("<think>x</think><translate>a", None),
        ("a", None),
    ],
)
def test_the_form(text: str, found: str | None) -> None:
    assert translation_of(text) == found
    assert translation_of("<translate>a</translate>", thinking=False) == "a"


def test_values_by_hand() -> None:
    pytest.importorskip("sacrebleu")
    assert judge(Translated(), "the dog sees a cat", ITEM).value == -3.0
    assert judge(Translated(), said(""), ITEM).value == -1.0
    assert "<think>...</think><translate>...</translate>" in judge(Translated(), "the dog", ITEM).explanation
    assert "form <translate>...</translate>," in judge(Translated(thinking=False), "the dog", ITEM).explanation
    assert judge(Translated(), said(""), ITEM).explanation == "the translation is empty"
    right = judge(Translated(), said("the dog sees a cat"), ITEM)
    assert right.value == 2.0 and right.status == "ok" and right.parts["form"].value == 1.0
    # 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples: (4/5 3/4 2/3 1/2)^(1/4) = .6687
    near = judge(Translated(), said("the dog sees a cow"), ITEM)
    assert near.value == pytest.approx(1.6687) and near.status == "wrong"


def test_few_words_need_the_effective_order() -> None:
    pytest.importorskip("sacrebleu")
    short = Task(key="k", prompt="x y z", answer="a red cat")
    assert judge(Translated(), said("a red cat"), short).value == 1.0
    assert judge(Translated(effective_order=True), said("a red cat"), short).value == 2.0


def test_measures_and_thresholds() -> None:
    pytest.importorskip("sacrebleu")
    shuffled = said("cat a sees dog the")
    assert judge(Translated(measure="sem", semantic=BAG), shuffled, ITEM).value == 2.0
    mix = judge(Translated(measure="mix", semantic=BAG), said("the dog sees a cow"), ITEM)
    assert mix.value == pytest.approx(1 + 0.6687 + 0.8) and mix.parts["meaning"].value == pytest.approx(0.8)
    lex = Translated(discrete=True)
    assert judge(lex, said("the dog sees a cow"), ITEM).value == 3.0 and judge(lex, shuffled, ITEM).value == -0.5
    both = Translated(measure="mix", semantic=BAG, discrete=True)
    assert judge(both, said("the dog sees a cow"), ITEM).value == -0.5  # .8 is not above .9
    assert judge(both, said("the dog sees a cat"), ITEM).value == 3.0
    with pytest.raises(ValidationError, match="measure sem needs semantic"):
        Translated(measure="sem")


def test_a_copy_of_the_source_means_nothing(tmp_path: object) -> None:
    pytest.importorskip("sacrebleu")
    same = Task(key="k", prompt="p", answer="OK", fields={"source": "OK"})
    generous = WordOverlap(correct_at=0.0)
    copied = Translated(measure="sem", semantic=generous)
    assert judge(copied, said("OK"), same).value == 2.0  # where the reference is the source, it is right
    item = Task(key="k", prompt="p", answer="ba of", fields={"source": "ba de"})
    assert judge(copied, said("ba de"), item).value == 1.0 and judge(copied, said("ba of"), item).value == 2.0


@frozen
class Failing(Reward):
    """A score of meaning that never works."""

    async def score(self, group: Group, context: RewardContext) -> list[Score]:
        return [failure("no answer")] * len(group)


def test_what_cannot_be_scored_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sacrebleu")
    with pytest.raises(UserError, match="task k has no reference translation"):
        Translated().check([Task(key="k", prompt="p", answer=" ")])
    broken = Translated(measure="sem", semantic=Failing())
    assert judge(broken, said("a"), ITEM).status == "error"
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[translation\]'"):
        Translated().prepare()


def test_words_in_common_by_hand() -> None:
    task = Task(key="k", prompt="p", answer="a b b c")
    found = {text: judge(BAG, text, task).value for text in ("c b a b", "B", "b b b b", "", "x")}
    assert found == pytest.approx({"c b a b": 1.0, "B": 0.4, "b b b b": 0.5, "": 0.0, "x": 0.0})


def test_a_cut_is_stated() -> None:
    """Of 4,001 characters the first 4,000 are compared, and the score states it."""
    for count, stated in ((4000, False), (4001, True)):
        text = f"<think>so</think><translate>{'a' * count}</translate>"
        score = judge(Translated(), text, Task(key="t", prompt="p", answer="a"))
        assert ("of the first 4,000 characters" in score.explanation) == stated
