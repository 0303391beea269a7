"""Names, docstrings, comments, texts and pages use the field's words, not those that docs/glossary.md forbids.

New code is held to it too: the law names file, line, word and what to say instead.
"""

from pathlib import Path

import pytest

from tests.structure.package import uncollected
from tests.structure.words import GLOSSARY, Rule, files, read_rules, texts_of, uses

PAGE = """
## Words that are not used

| forms | say | allowed |
|---|---|---|
| `seats?` | role | |
| `told apart` | distinguished | |
| `(a\\|one) row an? rollout` | one row per rollout | |
| `attempts?` | rollout | `src/serving/*` `retry attempts?` |

| not | but |
|---|---|
| `world` | environment |
"""
SOURCE = '''
"""A module with a Seat.

These are told
apart.
"""
numSeats = first_seat = "a retry attempt"  # an attempt
text = f"one row a rollout {seated}"
'''


@pytest.fixture
def rules() -> list[Rule]:
    return read_rules(PAGE)


def test_the_table_is_read(rules: list[Rule]) -> None:
    assert rules == [
        Rule(forms=("seats?",), say="role"),
        Rule(forms=("told apart",), say="distinguished"),
        Rule(forms=("(a|one) row an? rollout",), say="one row per rollout"),
        Rule(forms=("attempts?",), say="rollout", files=("src/serving/*",), phrases=("retry attempts?",)),
    ]


def test_names_comments_and_texts_are_read(tmp_path: Path, rules: list[Rule]) -> None:
    """Names are split into words, phrases go over line breaks, and a longer word is another word."""
    path = tmp_path / "src" / "module.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    found = [str(use) for use in uses(path, rules, tmp_path)]
    assert found == [
        "src/module.py:2: 'Seat'; say: role",
        "src/module.py:4: 'told apart'; say: distinguished",
        "src/module.py:7: 'Seats'; say: role",
        "src/module.py:7: 'seat'; say: role",
        "src/module.py:7: 'attempt'; say: rollout",
        "src/module.py:8: 'one row a rollout'; say: one row per rollout",
    ]


def test_of_tests_docstrings_comments_and_names_of_tests_are_read(tmp_path: Path, rules: list[Rule]) -> None:
    """Not what they hold as data, and not the names of their variables."""
    path = tmp_path / "tests" / "test_it.py"
    path.parent.mkdir()
    path.write_text(SOURCE + 'def test_a_seat(attempt):\n    """An attempt."""\n    return "seats"\n')
    found = [str(use) for use in uses(path, rules, tmp_path)]
    assert found == [
        "tests/test_it.py:9: 'seat'; say: role",
        "tests/test_it.py:2: 'Seat'; say: role",
        "tests/test_it.py:4: 'told apart'; say: distinguished",
        "tests/test_it.py:7: 'attempt'; say: rollout",
        "tests/test_it.py:10: 'attempt'; say: rollout",
    ]


def test_pages_are_read_with_their_lines(tmp_path: Path, rules: list[Rule]) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Title\n\nThe seats.\n")
    assert [str(use) for use in uses(path, rules, tmp_path)] == ["page.md:3: 'seats'; say: role"]


def test_a_word_is_allowed_in_the_files_of_its_row(tmp_path: Path, rules: list[Rule]) -> None:
    path = tmp_path / "src" / "serving" / "client.py"
    path.parent.mkdir(parents=True)
    path.write_text("attempts = 3\n")
    assert not list(uses(path, rules, tmp_path))


def test_names_are_split_at_underscores_and_capitals() -> None:
    assert [text for _, text in texts_of("HTTPSeat = a_seat1") if text] == ["HTTP Seat", "a seat 1"]


def test_tables_of_old_names_are_not_read() -> None:
    source = 'RENAMED = {\n    "seat": "role",\n}\nOTHER = "seat"\n'
    assert [text for _, text in texts_of(source) if "seat" in text] == ['"seat"']


def test_the_table_of_the_glossary_has_valid_rules() -> None:
    rules = read_rules(GLOSSARY.read_text(encoding="utf-8"))
    assert len(rules) > 15
    assert all(rule.forms and rule.say for rule in rules)


def test_only_words_of_the_field_are_used() -> None:
    rules = read_rules(GLOSSARY.read_text(encoding="utf-8"))
    with uncollected():
        found = [str(use) for path in files() for use in uses(path, rules)]
    assert not found, f"{len(found)} words that docs/glossary.md does not allow:\n" + "\n".join(found)
