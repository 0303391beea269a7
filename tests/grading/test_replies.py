"""What judges' replies say: every parser on right, doubtful and empty replies."""

import pytest

from posttrain.grading.replies import PARSERS, Parser, read_reply

TAG = "<think>one</think><answer>{}</answer>"


@pytest.mark.parametrize(
    ("parser", "text", "choice"),
    [
        ("first_tag", "<answer> A </answer><answer>B</answer>", "A"),
        ("first_tag", " Answer 1 is better\n", "Answer 1 is better"),
        ("first_tag", "<answer>a</answer>", "a"),
        ("first_tag", "  ", None),
        ("last_letter", "<answer>A</answer> or <answer>A or B</answer>", "B"),
        ("last_letter", "<answer>BAD</answer>", None),
        ("last_letter", "A", None),
        ("strength", "<answer>-2</answer>", "A"),
        ("strength", "<answer> 3 </answer>", "B"),
        ("strength", "<answer>10</answer>", None),
        ("strength", "<answer>0</answer>", None),
        ("after_thinking", "<think><answer>A</answer></think><answer>B</answer>", "B"),
        ("after_thinking", "<think>so</think><answer>A</answer><answer>A</answer>", None),
        ("after_thinking", "<answer>A</answer>", None),
        ("after_thinking", "<think><answer>A</answer>", None),
        ("after_thinking", "<think></think><answer>C</answer>", None),
        ("yes_no", " Yes. ", "yes"),
        ("yes_no", "NO", "no"),
        ("yes_no", "yes, because", None),
    ],
)
def test_choices(parser: Parser, text: str, choice: str | None) -> None:
    said = read_reply(text, parser)
    assert said.choice == choice and said.text == text and bool(said.fault) == (choice is None)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("so.\nScores: 3, 5", (3.0, 5.0)),
        ("Scores: [3, 5]", (3.0, 5.0)),
        ("Scores: 1, 1\nno: Scores: 10, 2\n", (10.0, 2.0)),
        ("Scores: 3", ()),
        ("Scores: 3, 5, 1", ()),
        ("Scores: 0, 5", ()),
        ("Scores: 11, 5", ()),
        ("Scores: 3.5, 5", ()),
        ("3, 5", ()),
    ],
)
def test_lists_of_scores(text: str, scores: tuple[float, ...]) -> None:
    said = read_reply(text, "score_list", 2)
    assert said.scores == scores and bool(said.fault) == (not scores)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('so {"score": 7} and {"score": 1}', 7.0),
        ('{"why": "{"} {"score": 2.5}', 2.5),
        ('{"score": true} {"score": "3"} {"score": 11} {"score": 0}', 0.0),
        ('{"score": NaN}', None),
        ('{"score": 1, "score": 2}', None),
        ("score: 3", None),
    ],
)
def test_json_scores(text: str, score: float | None) -> None:
    assert read_reply(text, "json_score").scores == (() if score is None else (score,))


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("text", ["", "<answer>" * 3000, "{" * 3000, "Scores: " + "1," * 3000, "\ud800"])
def test_hostile_replies_are_read_in_no_time_and_say_nothing(parser: Parser, text: str) -> None:
    said = read_reply(text, parser)
    assert bool(said.fault) == (parser != "first_tag" or not text)
