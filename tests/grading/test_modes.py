import pytest

from posttrain.grading.modes import is_formed, mode_of


@pytest.mark.parametrize(
    ("text", "mode", "formed"),
    [
        ("<judge>easy, think off</judge>\n#### 4", "off", True),
        ("<judge>hard, think on</judge><think>2+2=4</think>\n#### 4", "on", True),
        ("<judge>easy, think off</judge><think>2+2=4</think>\n#### 4", "off", False),
        ("<judge>hard, think on</judge>\n#### 4", "on", False),
        ("<judge>hard, think on</judge><think> </think>\n#### 4", "on", False),
        ("<judge>hard, think on</judge><think>2+2=4</think>", "on", False),
        ("<judge>hard, think on</judge><think>2+2=4", "on", False),
        ("<judge>a<judge>b, think off</judge></judge>\n#### 4", "on", False),
        ("<judge>easy, think off</judge><judge>hard, think on</judge>\n#### 4", "off", False),
        ("<judge>easy</judge>\n#### 4", "on", False),
        ("<judge>easy, think off\n#### 4", "on", False),
        ("well <judge>easy, think off</judge>\n#### 4", "on", False),
        ("<judge>easy, rethink off</judge>\n#### 4", "on", False),
        ("", "on", False),
    ],
)
def test_the_choice_and_the_form(text: str, mode: str, formed: bool) -> None:
    assert (mode_of(text), is_formed(text)) == (mode, formed)
