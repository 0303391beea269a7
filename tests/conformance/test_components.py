"""Laws of every component of every family."""

import ast
import importlib
import inspect
import json
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import posttrain
from posttrain.component import Component
from posttrain.components.advantages import Advantage
from posttrain.components.balances import Balance
from posttrain.components.corrections import Correction
from posttrain.components.curricula import Curriculum
from posttrain.components.diagnostics import Diagnostic
from posttrain.components.experts import Experts
from posttrain.components.filters import Filter
from posttrain.components.hooks import Hook
from posttrain.components.merges import Merge
from posttrain.components.objectives import Objective
from posttrain.components.pairings import Pairing
from posttrain.components.penalties import Penalty
from posttrain.components.preferences import PreferenceLoss
from posttrain.components.rankings import Ranking
from posttrain.components.reducers import Reducer
from posttrain.components.rollouts import Rollout
from posttrain.components.search import Search
from posttrain.components.selections import Selection
from tests.conformance._members import contracts, each, example, kinds, variants
from tests.structure.package import budgets, uncollected

METHODS = (
    Advantage,
    Balance,
    Correction,
    Curriculum,
    Diagnostic,
    Experts,
    Filter,
    Merge,
    Objective,
    Pairing,
    Penalty,
    PreferenceLoss,
    Ranking,
    Reducer,
    Rollout,
    Search,
    Selection,
    Hook,
)
"""Families whose members come from the literature."""
SOURCE = Path(posttrain.__file__).parent
TESTS = Path(__file__).parent.parent
LIMITS = budgets(TESTS.parent / "AGENTS.md")
CITATION = re.compile(r"arXiv:\d{4}\.\d{4,5}|doi:10\.|\b[a-z0-9-]+\.(com|io|net|org|site)/\S+")


def is_immutable(cls: type[Any]) -> None:
    instance = example(cls)
    for field in fields(instance):
        with pytest.raises(FrozenInstanceError):
            setattr(instance, field.name, getattr(instance, field.name))
    with pytest.raises(FrozenInstanceError):
        instance.a_new_name = 1


def survives_json(cls: type[Any]) -> None:
    contract = cls.__bases__[0]
    adapter = TypeAdapter(contract)
    for _, instance in variants(cls):
        text = adapter.dump_json(instance)
        assert json.loads(text)["kind"] == instance.kind and contract.find(instance.kind) is cls
        assert adapter.validate_json(text) == instance
        assert adapter.dump_json(adapter.validate_json(text)) == text


def pickles(cls: type[Any]) -> None:
    for _, instance in variants(cls):
        assert pickle.loads(pickle.dumps(instance)) == instance


def extends_the_contract_directly(cls: type[Any]) -> None:
    (contract,) = cls.__bases__
    assert contract in contracts(), "a component inherits from its family's contract and nothing else"


def documents_its_module_and_fields(cls: type[Any]) -> None:
    module = importlib.import_module(cls.__module__)
    assert module.__doc__ and cls.__doc__
    for name, field in cls.__pydantic_fields__.items():
        documented = field.description or field.annotation in contracts()
        assert documented, f"{cls.__name__}.{name} has no docstring below it"


def has_few_fields(cls: type[Any]) -> None:
    limit = LIMITS["fields" if issubclass(cls, METHODS) else "other_fields"]
    assert len(fields(cls)) <= limit, "a component with this many knobs is several components"


def reads_every_field(cls: type[Any]) -> None:
    """By the component itself for a method; anywhere in the package for the others, whose settings others act on."""
    own = set(attributes_read(Path(inspect.getfile(cls)), of="self"))
    anywhere = own if issubclass(cls, METHODS) else attributes_read_anywhere()
    unread = {field.name for field in fields(cls)} - anywhere
    assert not unread, f"{cls.__name__} ignores {sorted(unread)}"


def is_named_in_some_test(cls: type[Any]) -> None:
    assert cls.__name__ in words_of_tests(), f"no test outside conformance/ names {cls.__name__}"


def cites_its_source(cls: type[Any]) -> None:
    text = importlib.import_module(cls.__module__).__doc__ or ""
    assert "Source:" in text or "Differs:" in text, "the module docstring states where the formula is from"
    assert CITATION.search(text), "the source is cited by arXiv number, DOI or address"


def has_a_test_of_its_own(cls: type[Any]) -> None:
    kind = cls.__module__.rpartition(".")[2]
    family = Path(inspect.getfile(cls.__bases__[0])).parent.relative_to(SOURCE)
    file = TESTS / family / f"test_{kind}.py"
    assert file.exists(), f"{file.relative_to(TESTS.parent)} is missing"
    assert f"posttrain.{'.'.join(family.parts)}.{kind}" in file.read_text(), f"{file.name} does not import {kind}"


LAWS = (
    extends_the_contract_directly,
    is_immutable,
    survives_json,
    pickles,
    documents_its_module_and_fields,
    has_few_fields,
    reads_every_field,
    is_named_in_some_test,
)
OF_METHODS = (cites_its_source, has_a_test_of_its_own)


def test_every_family_is_found() -> None:
    assert set(METHODS) < set(contracts())
    assert all(contract.kinds() for contract in METHODS)


@pytest.mark.parametrize(("contract", "kind"), kinds(*contracts()))
@each(law=LAWS)
def test_is_a_component(contract: type[Component], kind: str, law: Callable[[type[Any]], None]) -> None:
    """Its class is imported by the test, so that a broken file fails alone."""
    assert contract.find(kind).__module__ == f"{contract.family()}.{kind}"
    law(contract.find(kind))


@pytest.mark.parametrize(("contract", "kind"), kinds(*METHODS))
@each(law=OF_METHODS)
def test_is_from_the_literature(contract: type[Component], kind: str, law: Callable[[type[Any]], None]) -> None:
    law(contract.find(kind))


@cache
def words_of_tests() -> frozenset[str]:
    texts = (f.read_text() for f in TESTS.rglob("test_*.py") if f.parent.name != "conformance")
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def attributes_read(file: Path, *, of: str | None = None) -> Iterator[str]:
    """Names of the attributes that a module reads, of the variable `of` only when it is given."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = node.value.id if isinstance(node.value, ast.Name) else None
            if of in (None, owner):
                yield node.attr


@cache
def attributes_read_anywhere() -> set[str]:
    with uncollected():
        return {name for file in SOURCE.rglob("*.py") for name in attributes_read(file)}


def test_what_depends_on_progress_declares_it() -> None:
    """A component that is passed the progress only hands it on."""
    from posttrain import components

    for path in Path(components.__path__[0]).rglob("*.py"):
        text = path.read_text().replace("progress=batch.progress", "")
        if re.search(r"\b(batch|context|tokens)\.progress\b|def at\(self, progress", text) and "raise Not" not in text:
            assert "def follows_progress" in text or path.name == "__init__.py", path
