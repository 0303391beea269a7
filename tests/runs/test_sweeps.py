"""Results of sweeps in files, also of files that were edited by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.errors import UserError
from posttrain.runs.editing import Effect, effects_in
from posttrain.runs.merging import Point, points_in

SUMMARY: dict[str, Any] = {
    "accuracy": 0.5,
    "accuracy_interval": [0.1, 0.9],
    "mean_tokens": 3.0,
    "truncated": 0.0,
    "perplexity": float("inf"),
}


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    point = Point(coefficient=0.5, summary=SUMMARY, reflective=0.25)  # type: ignore[arg-type]
    points_in(path, {"method": "soup"}).put(point)
    again = points_in(path, {"method": "soup"})
    assert again.get("0.5") == point and again.get("1") is None
    effect = Effect(edit="random", strength=-1.0, away=0.5, perplexity=2.0, perplexity_away=3.0)
    effects = effects_in(tmp_path / "effects.json", {})
    effects.put(effect)
    assert effects_in(tmp_path / "effects.json", {}).get("random -1") == effect


def test_settings_that_are_known_later_are_compared_too(tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    kept = points_in(path, {"method": "soup"})
    kept.match({"recipe": "a"})
    kept.put(Point(coefficient=0.0, summary=SUMMARY, reflective=0.0))  # type: ignore[arg-type]
    points_in(path, {"method": "soup"}).match({"recipe": "a"})
    with pytest.raises(UserError, match="holds results of other recipe: a, and not b; name another file, or remove it"):
        points_in(path, {"method": "soup"}).match({"recipe": "b"})
    with pytest.raises(UserError, match="holds results of other method: soup, and not ties"):
        points_in(path, {"method": "ties"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"results": 3}, "results is 3, and not an object"),
        ({"settings": None}, "settings is None, and not an object"),
        ({"results": {"0.5": 3}}, r"results\.0\.5 is 3: "),
        ({"results": {"0.5": {}}}, r"results\.0\.5\.coefficient is missing: Field required"),
        ({"coefficient": 0.6}, r"results\.0\.5 is the result of 0\.6"),
        ({"coefficient": "half"}, r"results\.0\.5\.coefficient is 'half': Input should be a valid number"),
        ({"reflective": 2.0}, r"results\.0\.5\.reflective is 2\.0: Input should be less than or equal to 1"),
        ({"accuracy": 1.0}, r"results\.0\.5\.accuracy is 1\.0: "),
        ({"summary": {**SUMMARY, "accuracy": "good"}}, r"summary\.accuracy is 'good': Input should be a valid number"),
        ({"summary": {"accuracy": 0.5}}, r"summary\.accuracy_interval is missing: Field required"),
        ({"summary": {**SUMMARY, "mean_tokens": -1}}, r"summary\.mean_tokens is -1: Input should be greater"),
    ],
)
def test_an_edited_file_is_named_with_its_place(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    result = {"coefficient": 0.5, "summary": SUMMARY, "reflective": 0.0}
    whole = {"settings": {}, "results": {"0.5": {**result, **changes}}}
    path.write_text(json.dumps({**whole, **changes} if changes.keys() & whole.keys() else whole))
    with pytest.raises(UserError, match=message) as error:
        points_in(path, {})
    assert str(path) in str(error.value) and "remove it" in str(error.value)
