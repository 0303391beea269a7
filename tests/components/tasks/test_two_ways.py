import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.two_ways import TwoWays
from posttrain.components.tasks.word_problems import WordProblems
from posttrain.errors import UserError
from posttrain.grading.modes import is_formed, mode_of


def test_both_ways_have_the_form_and_the_answer() -> None:
    plain = Arithmetic(size=200).load()
    both = TwoWays(tasks=Arithmetic(size=200)).load()
    for before, after in zip(plain, both, strict=True):
        [text], [worked] = after.demonstrations, before.demonstrations
        assert is_formed(text) and text.endswith(f"\n#### {before.answer}")
        assert text.startswith(f"<judge>{before.domain}, think {mode_of(text)}</judge>")
        assert (worked.partition("\n")[0].strip() in text) == (mode_of(text) == "on")
        assert (after.key, after.prompt, after.answer) == (before.key, before.prompt, before.answer)
    assert 70 < sum(mode_of(task.demonstrations[0]) == "on" for task in both) < 130


def test_one_way_only() -> None:
    for share, mode in ((0.0, "off"), (1.0, "on")):
        tasks = TwoWays(tasks=Arithmetic(size=20), on=share).load()
        assert {mode_of(task.demonstrations[0]) for task in tasks} == {mode}


def test_a_demonstration_without_thoughts_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from posttrain.components.tasks.files import Files

    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "2+2", "completion": "#### 4"}\n')
    with pytest.raises(UserError, match="no thoughts with '#### '"):
        TwoWays(tasks=Files(path=str(path))).load()
    assert TwoWays(tasks=Arithmetic(size=2, demonstrate=False)).load()[0].demonstrations == ()
    assert WordProblems(size=1).load()
