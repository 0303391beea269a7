"""Rows with pictures, in the ways in which data sets write them."""

import base64
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from posttrain.components.tasks.files import Files
from posttrain.datasets.images import encoded, pixels_of, write_png
from posttrain.errors import UserError
from posttrain.types import Task

RED, BLUE = (write_png(np.full((4, 6, 3), colour, np.uint8)) for colour in ((200, 0, 0), (0, 0, 200)))


def load(folder: Path, *rows: dict[str, Any]) -> list[Task]:
    (folder / "pictures").mkdir(exist_ok=True)
    (folder / "pictures" / "red.png").write_bytes(RED)
    (folder / "pictures" / "blue.png").write_bytes(BLUE)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(Files(path=str(folder / "rows.jsonl")).load())


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    [task] = load(tmp_path, {"question": "Which colour?", "answer": "red", "image": "pictures/red.png", "boxes": [1]})
    assert task.prompt == "<image>Which colour?" and task.answer == "red"
    assert (pixels_of(task.images[0]) == (200, 0, 0)).all()
    assert task.fields == {"answer": "red", "boxes": [1]}, "pixels are no field"


def test_the_key_is_of_the_picture_too_and_the_same_wherever_the_data_is(tmp_path: Path) -> None:
    rows = [{"question": "?", "answer": "x", "image": f"pictures/{name}.png"} for name in ("red", "blue")]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, there = load(tmp_path / "a", *rows), load(tmp_path / "b", *rows)
    assert [t.key for t in here] == [t.key for t in there] and here[0].key != here[1].key


LINK = "data:image/png;base64," + base64.b64encode(BLUE).decode()


@pytest.mark.parametrize(
    "held", [{"image": LINK}, {"image_url": {"url": LINK}}, {"image": {"bytes": base64.b64encode(BLUE).decode()}}]
)
def test_messages_hold_pictures_among_their_parts(tmp_path: Path, held: dict[str, Any]) -> None:
    kind = "image_url" if "image_url" in held else "image"
    parts = [{"type": "text", "text": "Left "}, {"type": "image"}, {"type": "text", "text": " right "}]
    message = {"role": "user", "content": [*parts, {"type": kind, **held}]}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "red"}]}
    [task] = load(tmp_path, {"messages": [message, answer], "images": ["pictures/red.png"]})
    assert task.prompt == ({"role": "user", "content": "Left <image> right <image>"},)
    assert task.demonstrations == ("red",)
    assert [encoded(image) for image in task.images] == [RED, BLUE]


def test_pictures_without_a_place_come_first_in_the_first_question(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which?"}]
    [task] = load(tmp_path, {"prompt": messages, "images": ["pictures/red.png", "pictures/blue.png"]})
    assert [m["content"] for m in task.prompt if isinstance(m, dict)] == ["Be brief.", "<image><image>Which?"]


def test_parquet_as_the_hub_has_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with duckdb.connect() as connection:
        picture = f"struct_pack(bytes := from_base64('{base64.b64encode(RED).decode()}'), path := 'red.png')"
        connection.execute(f"COPY (SELECT 'Which?' AS question, {picture} AS image) TO '{path}' (FORMAT parquet)")
    [task] = Files(path=str(path)).load()
    assert encoded(task.images[0]) == RED


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "?", "image": "pictures/gren.png"}, "there is no image 'pictures/gren.png' in"),
        ({"question": "?", "image": "https://example.org/a.png"}, "on the network"),
        ({"question": "?", "image": 7}, "an image is a path, base64 or a link"),
        ({"question": "<image>?", "images": ["pictures/red.png"] * 2}, "has 1 places <image> for 2 images"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}], "images": []},
            "the messages show 1 images that they do not hold",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "neither text nor an image"),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=r"rows.jsonl line 1: ") as caught:
        load(tmp_path, row)
    assert said in str(caught.value)


def test_text_that_only_speaks_of_images_stays_text(tmp_path: Path) -> None:
    [task] = load(tmp_path, {"question": "What does <image> mean?", "answer": "x"})
    assert task.prompt == "What does <image> mean?" and not task.images


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.slow
def test_a_data_set_saved_by_datasets_is_not_decoded(tmp_path: Path, several: bool) -> None:
    datasets = pytest.importorskip("datasets")
    picture = {"bytes": RED, "path": None}
    held = datasets.List(datasets.Image()) if several else datasets.Image()
    features = datasets.Features({"question": datasets.Value("string"), "images": held})
    rows = {"question": ["Which?"], "images": [[picture, picture] if several else picture]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    [task] = Files(path=str(tmp_path / "saved")).load()
    assert [encoded(image) for image in task.images] == [RED] * (1 + several)
