import re
from pathlib import Path

import pytest

from posttrain.component import Component
from posttrain.components.objectives import Objective
from posttrain.components.optimizers import Optimizer
from posttrain.errors import UserError
from posttrain.recipes import catalogue
from posttrain.recipes.catalogue import Entry, entries, families


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one family of two members, one of them a package, and one recipe; none can be imported."""
    files = {
        "methods/__init__.py": '"""Methods."""',
        "methods/loss/_helper.py": "",
        "methods/loss/dapo.py": '"""DAPO: four changes.\n\nSource: arXiv:2503.14476."""\nimport nowhere',
        "prizes/__init__.py": "class Helper: ...\nclass GrandPrize(Component): ...",
        "prizes/gold.py": (
            '"""Gold, as in Dr. Who et al. 1963\nand later; best of all. More words."""\n'
            "from typing import Final\nROWS: Final = (102, 7)\nSOURCE = 'https://example.org/gold'\nraise SystemExit"
        ),
        "prizes/silver/__init__.py": '"""Silver."""\nROWS = [3]',
        "prizes/notes.txt": "",
        "settings/__init__.py": "",
        "plain/__init__.py": "class Plain: ...",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(catalogue, "PACKAGE", tmp_path)
    return tmp_path


def test_entries_are_read_from_docstrings_and_constants_without_importing(package: Path) -> None:
    assert entries() == [
        Entry(
            name="dapo", family="recipe", rows=(), source="arXiv:2503.14476", summary="DAPO: four changes", area="loss"
        ),
        Entry(
            name="gold",
            family="grand_prize",
            rows=(102, 7),
            source="https://example.org/gold",
            summary="Gold, as in Dr. Who et al. 1963 and later; best of all",
        ),
        Entry(name="silver", family="grand_prize", rows=(3,), source="", summary="Silver"),
    ]


@pytest.mark.parametrize("name", ["grand_prize", "prizes"])
def test_one_family_by_its_name_or_its_folder(package: Path, name: str) -> None:
    assert [entry.name for entry in entries(name)] == ["gold", "silver"]


def test_an_unknown_family_gets_the_nearest() -> None:
    with pytest.raises(UserError, match="no family 'objektive'; did you mean 'objective'"):
        entries("objektive")


@pytest.mark.parametrize(
    ("docstring", "source"),
    [
        ("X. arXiv: 2503.14476", "arXiv: 2503.14476"),
        ("X. See https://example.org/a_b, page 2, and arXiv:2503.14476.", "arXiv:2503.14476"),
        ("X (https://example.org/a_b).", "https://example.org/a_b"),
        ("X. Schulman et al. (2017).", "Schulman et al. 2017"),
        ("X. Sutton and Barto 2018.", "Sutton and Barto 2018"),
        ("X. Source: Williams 1992, section 4.", "Williams 1992"),
        ("X. Nothing here.", ""),
    ],
)
def test_the_source_is_the_first_that_is_named(package: Path, docstring: str, source: str) -> None:
    (package / "methods" / "loss" / "x.py").write_text(f'"""{docstring}"""')
    assert next(e for e in entries("recipe") if e.name == "x").source == source


@pytest.mark.parametrize(("name", "contract"), [("objective", Objective), ("optimizer", Optimizer)])
def test_the_catalogue_lists_the_kinds_that_recipes_can_use(name: str, contract: type[Component]) -> None:
    assert [entry.name for entry in entries(name)] == contract.kinds()


def test_every_family_has_a_name_of_its_own_and_every_entry_a_summary() -> None:
    assert {"recipe", "objective", "advantage", "reward", "tasks", "stage", "schedule"} <= set(families())
    for entry in entries():
        assert re.match(r"\S.*\S$", entry.summary), f"{entry.family} {entry.name}: its docstring has no first sentence"
        assert len(entry.summary) < 250, f"{entry.family} {entry.name}: its first sentence is too long for a list"
