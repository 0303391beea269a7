"""Every component that ships, found by walking the package: a new file is covered on arrival.

A law is written once for a family and run for `members(Contract)`: each kind with its defaults, and again with each
choice of a ``Literal``, each boolean turned over, and each optional field the other way.
"""

import importlib
import inspect
import itertools
import pkgutil
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

import posttrain
from posttrain.component import Component

CANDIDATES: tuple[Any, ...] = (
    *(1, 2, 0.5, 0, "text", "file.py:name", True, (), {}, ["text"], {"one": "other"}),
    {"one": {"text": "short", "negated": "long"}},
)
"""Values that are tried, in this order, where a field has no default."""
NEEDED = {"posttrain.components.rollouts.game": {"environment": {"kind": "bargain"}}}
"""By module, parts of a member whose simplest kind it refuses."""


@cache
def contracts() -> tuple[type[Component], ...]:
    """The contract of every family."""
    packages = [m.name for m in pkgutil.walk_packages(posttrain.__path__, "posttrain.") if m.ispkg]
    found = [
        member
        for name in packages
        for member in vars(importlib.import_module(name)).values()
        if inspect.isclass(member) and Component in member.__bases__ and member.__module__ == name
    ]
    return tuple(sorted(found, key=lambda contract: contract.__name__))


def kinds(*families: type[Component]) -> list[Any]:
    """A parameter pair per kind: its contract and its name. The module is not imported yet: see `find`."""
    return [
        pytest.param(contract, kind, id=f"{contract.__name__.lower()}-{kind}")
        for contract in families
        for kind in contract.kinds()
    ]


def members(contract: type[Component]) -> list[Any]:
    """A parameter per kind and variant: an instance."""
    return [
        pytest.param(variant, id="-".join([kind, *label]))
        for kind in contract.kinds()
        for label, variant in variants(contract.find(kind))
    ]


def each(**values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One test that tries a law with each combination of these values, and names those that fail.

    To find, begin and report a test takes longer than most laws; a test per member is what a reader needs.
    """
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]

    def decorate(law: Callable[..., None]) -> Callable[..., None]:
        def test(*given: Any, **more: Any) -> None:
            failed: list[BaseException] = []
            for chosen in combinations:
                try:
                    law(*given, **more, **chosen)
                except (Exception, pytest.fail.Exception) as error:
                    shown = (f"{name}={getattr(value, '__name__', value)!r:.60}" for name, value in chosen.items())
                    error.add_note(f"with {', '.join(shown)}")
                    failed.append(error)
            for other in failed[1:]:
                failed[0].add_note(f"{' '.join(other.__notes__)}: {type(other).__name__}: {other}")
            if failed:
                raise failed[0]

        signature = inspect.signature(law)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in values]
        test.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        test.__name__, test.__doc__, test.__module__ = law.__name__, law.__doc__, law.__module__
        return test

    return decorate


@cache
def example(cls: type[Any]) -> Any:
    """An instance: defaults, and for fields without one the first candidates that are valid together."""
    hints = get_type_hints(cls, include_extras=True)
    if needed := NEEDED.get(cls.__module__):
        return TypeAdapter(cls).validate_python(needed)
    missing = [name for name, field in cls.__pydantic_fields__.items() if field.is_required()]
    options = [candidates(hints[name]) for name in missing]
    for values in itertools.product(*options):
        try:
            return cls(**dict(zip(missing, values, strict=True)))
        except ValidationError:
            continue
    raise AssertionError(f"no candidates for {missing} make a {cls.__name__}; add some to {__name__}.CANDIDATES")


def candidates(annotation: Any) -> list[Any]:
    """Valid values for a type: a component, a collection of components, or something plain."""
    if get_origin(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    inner = [arg for arg in get_args(annotation) if _is_contract(arg)]
    if _is_contract(annotation):
        return [simplest(annotation)]
    if inner and get_origin(annotation) is not None:
        return [v for v in ({"name": simplest(inner[0])}, [simplest(inner[0])]) if _fits(annotation, v)]
    return [value for value in CANDIDATES if _fits(annotation, value)]


def simplest(contract: type[Component]) -> Any:
    """An example of the first kind that needs no other component, or else none of its own family."""
    for refused in (Component, contract):
        for kind in contract.kinds():
            cls = contract.find(kind)
            required = [f.annotation for f in cls.__pydantic_fields__.values() if f.is_required()]  # type: ignore[attr-defined]
            parts = [part for a in required for part in (a, *get_args(a)) if _is_contract(part)]
            if not any(issubclass(part, refused) for part in parts):
                return example(cls)
    raise AssertionError(f"every kind of {contract.__name__} needs another one of its own family")


def _is_contract(annotation: Any) -> bool:
    return inspect.isclass(annotation) and Component in annotation.__bases__


def _fits(annotation: Any, value: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(value, strict=isinstance(value, bool))
    except ValidationError:
        return False
    return True


@cache
def variants(cls: type[Any]) -> tuple[tuple[list[str], Any], ...]:
    """The example, and the example with one field changed, for each field with a few discrete choices."""
    return tuple(_variants(cls))


def _variants(cls: type[Any]) -> Iterator[tuple[list[str], Any]]:
    base = example(cls)
    hints = get_type_hints(cls, include_extras=True)
    yield [], base
    for field in fields(cls):
        current = getattr(base, field.name)
        for value in _others(hints[field.name], current):
            try:
                changed = replace(base, **{field.name: value})
            except ValidationError:  # the value does not go with those of other fields
                continue
            yield [f"{field.name}={value}"], changed


def _others(annotation: Any, current: Any) -> list[Any]:
    """Other values of a field that has few of them; none for numbers and texts."""
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if value != current]
    if annotation is bool:
        return [not current]
    if get_origin(annotation) in (typing.Union, types.UnionType) and type(None) in get_args(annotation):
        inner = [arg for arg in get_args(annotation) if arg is not type(None)]
        return candidates(inner[0])[:1] if current is None else [None]
    return []
