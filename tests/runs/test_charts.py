import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posttrain.runs.charts import HEIGHT, WIDTH, Chart, Series, Span, draw, draw_intervals, ticks
from posttrain.runs.token_text import Piece, TokenTexts
from tests.runs.made_runs import write_byte_tokenizer


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.25, 0.5, 0.75, 1]),
        (0, 97, [0, 25, 50, 75, 100]),
        (-3, 3, [-4, -2, 0, 2, 4]),
        (0.02, 0.031, [0.02, 0.025, 0.03, 0.035]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
@example(0.0, 5e-324)
@example(1e6, 1e-9)
def test_ticks_hold_the_interval(low: float, size: float) -> None:
    marks = ticks(low, low + size)
    assert marks[0] <= low + 1e-6 * (abs(low) + size) and marks[-1] >= low + size - 1e-6 * (abs(low) + size)
    assert 2 <= len(marks) <= 7


def chart(points: list[tuple[float, float]], **options: object) -> Chart:
    return Chart(title="Reward", caption="", series=[Series(name="reward", points=points)], **options)  # type: ignore[arg-type]


def test_a_chart_is_sound_markup_inside_its_frame_and_holds_its_values() -> None:
    spans = [Span(name="<sft> & more", first=1, last=60), Span(name="rl", first=61, last=100)]
    drawn = draw(chart([(i, i * i / 1e4) for i in range(1, 101)]), spans)
    root = ET.fromstring(str(drawn))
    values = json.loads(root.attrib["data-series"])["series"][0]["points"]
    assert [point[:2] for point in values[:2]] == [[1, 0.0001], [2, 0.0004]]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for _, _, x, y in values)
    assert "<sft> & more" in [element.text for element in root.iter()]
    assert len([e for e in root.iter() if e.attrib.get("class") == "line"]) == 2  # a line is not drawn across stages


def test_higher_values_are_drawn_higher_and_later_ones_further_right() -> None:
    root = ET.fromstring(str(draw(chart([(1, 0.5), (2, 0.75), (3, 0.6)]), [Span(name="rl", first=1, last=3)])))
    points = json.loads(root.attrib["data-series"])["series"][0]["points"]
    xs, ys = [p[2] for p in points], [p[3] for p in points]
    assert xs == sorted(xs)
    assert ys[1] < ys[2] < ys[0]


@pytest.mark.parametrize("points", [[(1, 0.0)], [(5, 2.0), (6, 2.0)], [(1, -1e-9), (2, 1e9)], [(0, 1e-30), (1, 2e-30)]])
def test_odd_values(points: list[tuple[float, float]]) -> None:
    drawn = str(draw(chart(points), [Span(name="rl", first=1, last=6)]))
    ET.fromstring(drawn)
    assert "nan" not in drawn and "inf" not in drawn


def test_long_curves_are_reduced_and_keep_their_mean() -> None:
    drawn = draw(chart([(i, float(i % 7)) for i in range(1, 10_001)]), [Span(name="rl", first=1, last=10_000)])
    points = json.loads(ET.fromstring(str(drawn)).attrib["data-series"])["series"][0]["points"]
    assert len(points) == 400
    assert points[-1][0] == 10_000
    assert sum(p[1] for p in points) / 400 == pytest.approx(3.0, abs=0.01)


def test_intervals_lie_around_their_share() -> None:
    root = ET.fromstring(str(draw_intervals([("before", 0.1, (0.05, 0.2)), ("after", 0.9, (0.8, 0.95))])))
    bars = [e for e in root.iter() if e.tag == "rect"]
    dots = [e for e in root.iter() if e.tag == "circle"]
    for bar, dot in zip(bars, dots, strict=True):
        left, width, middle = (float(e) for e in (bar.attrib["x"], bar.attrib["width"], dot.attrib["cx"]))
        assert left < middle < left + width
    assert float(dots[0].attrib["cx"]) < float(dots[1].attrib["cx"])


# Token texts


def test_bytes_become_characters_and_those_of_one_character_stay_together(tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path / "model")
    texts = TokenTexts.find(tmp_path)
    assert texts is not None
    assert texts.pieces(list("a é😀".encode())) == [
        Piece(0, 1, "a"),
        Piece(1, 2, " "),
        Piece(2, 4, "é"),
        Piece(4, 8, "😀"),
    ]
    assert [piece.text for piece in texts.pieces([0xC3])] == ["\ufffd"]
    assert "".join(piece.text for piece in texts.pieces([0xC3, 0x28, 0xFF, 10])) == "\ufffd(\ufffd\n"
    assert texts.pieces([]) == []
    assert texts.pieces([999])[0].text == "<unknown 999>"


def test_sentence_piece_style_and_special_tokens(tmp_path: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models

    vocabulary = {"▁Hello": 0, "▁": 1, "<0xC3>": 2, "<0xA9>": 3, "Ġ": 4}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    backend.add_special_tokens([AddedToken("<|end|>")])
    backend.save(str(tmp_path / "tokenizer.json"))
    texts = TokenTexts(tmp_path / "tokenizer.json")
    assert [p.text for p in texts.pieces([0, 1, 2, 3, 4, 5])] == [" Hello", " ", "é", "Ġ", "<|end|>"]


def test_no_tokenizer(tmp_path: Path) -> None:
    assert TokenTexts.find(tmp_path) is None
    write_byte_tokenizer(tmp_path / "checkpoints" / "step_000001_0" / "models" / "policy")
    assert TokenTexts.find(tmp_path) is not None
