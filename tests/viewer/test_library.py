import os
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.runs.store import RunStore
from posttrain.viewer.library import Library, distinct
from tests.runs.made_runs import RECIPE


def made(root: Path, name: str = "run") -> Path:
    with RunStore.create(root, name, RECIPE) as store:
        return store.folder


def test_runs_in_folders_in_folders_by_their_paths(tmp_path: Path) -> None:
    first = made(tmp_path / "runs")
    second = made(tmp_path / "compared" / "0-grpo", "seed")
    found = Library([tmp_path]).runs()
    assert found == {"runs~run-1": first, "compared~0-grpo~seed-1": second}
    assert Library([tmp_path / "runs", second]).runs() == {"run-1": first, "seed-1": second}


def test_the_most_recently_written_comes_first(tmp_path: Path) -> None:
    folders = [made(tmp_path) for _ in range(3)]
    for age, folder in zip((30, 10, 20), folders, strict=True):
        for name in ("metrics.jsonl", "recipe.yaml"):
            os.utime(folder / name, (1e9 - age, 1e9 - age))
    assert list(Library([tmp_path]).runs()) == ["run-2", "run-3", "run-1"]


def test_equal_names_get_digits_of_their_paths_and_a_run_is_listed_once(tmp_path: Path) -> None:
    """In any order of the folders, and whatever else is there, an address leads to the same run."""
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    names = {distinct("run-1", folder): folder for folder in (first, second)}
    assert len(names) == 2
    for places in ([tmp_path / "a", tmp_path / "b", first], [tmp_path / "b", tmp_path / "a"]):
        assert Library(places).runs() == names
    alone = Library([tmp_path / "b"])
    assert alone.runs() == {"run-1": second}
    for name, folder in names.items():
        assert alone.find(name) == (("run-1", second) if folder == second else None)
    assert Library([tmp_path / "a", tmp_path / "b"]).find("run-1") is None, "it would be either of two"


def test_new_runs_are_found(tmp_path: Path) -> None:
    made(tmp_path)
    library = Library([tmp_path])
    made(tmp_path)
    assert sorted(library.runs()) == ["run-1", "run-2"]


def test_checkpoints_and_hidden_folders_are_no_runs(tmp_path: Path) -> None:
    run = made(tmp_path)
    for other in (run / "checkpoints" / "1", tmp_path / ".trash"):
        (other / "rollouts").mkdir(parents=True)
        (other / "recipe.yaml").touch()
    assert list(Library([tmp_path]).runs()) == ["run-1"]


@pytest.mark.parametrize("place", ["nowhere", "empty"])
def test_a_place_without_runs_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    made(tmp_path / "other")
    with pytest.raises(UserError, match=place):
        Library([tmp_path / place])
