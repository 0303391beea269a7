"""The component base: a frozen, validated dataclass that is configuration and behaviour in one.

A *family* is a package whose ``__init__`` defines one contract, a direct subclass of `Component`. A *component* is a
subclass of that contract in a module of the package; the module's name is the component's ``kind``. The directory is
the registry: adding a file adds a kind, and nothing else has to know. Modules that are no members have a name with an
underscore, or are named in the package's ``SHARED``.

A renamed field or kind is refused with its new name: a class lists its renamed fields in ``RENAMED``, a contract the
renamed kinds of its family in ``RENAMED_KINDS``.

    objectives/__init__.py      class Objective(Component)      the contract
    objectives/ppo_clip.py      class PPOClip(Objective)        kind: ppo_clip

In Python a component is made by its constructor. In YAML and on the command line it is ``{kind: ppo_clip, clip_low:
0.1}``, or just ``ppo_clip``, or a spelling of its own that the family's `Component.from_text` knows (a path, say). A
kind with a dot in it, ``my_package.my_module``, is anybody's own module holding one subclass of the contract.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from pydantic import ConfigDict, GetCoreSchemaHandler, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs, PydanticCustomError, core_schema

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Declare a validated, immutable, keyword-only dataclass that rejects unknown fields with a hint."""

    def refuse_unknown(owner: type, given: Any) -> Any:
        settings = (given.kwargs or {}) if isinstance(given, ArgsKwargs) else given
        known = [field.name for field in fields(owner)]
        for key in settings if isinstance(settings, Mapping) else ():
            if key in known:
                continue
            new = renamed(owner).get(str(key))
            if new is not None:
                context = {"owner": owner.__name__, "key": str(key), "new": new}
                raise PydanticCustomError("unknown_field", "{owner}.{key} was renamed: write {new}", context)
            context = {"owner": owner.__name__, "key": str(key), "hint": nearest(str(key), known)}
            raise PydanticCustomError("unknown_field", "{owner} has no field '{key}'; {hint}", context)
        return given

    check: Any = classmethod(refuse_unknown)
    setattr(cls, "refuse_unknown", model_validator(mode="before")(check))  # noqa: B010
    config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
    return dataclass(frozen=True, kw_only=True, config=config)(cls)  # type: ignore[return-value]


def renamed(owner: type) -> Mapping[str, str]:
    """New names of the fields of a class that were called otherwise before, by their old names."""
    found: Mapping[str, str] = getattr(owner, "RENAMED", {})
    return found


def nearest(name: str, names: Iterable[str]) -> str:
    """A clause that ends an error about an unknown name: the nearest known name, or all of them."""
    known = sorted(map(str, names))
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
    swapped = [other for other in close if sorted(other) == sorted(name)]  # letters in another order
    close = swapped or close
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known) or 'none'}"


class Component:
    """Base of every family's contract; resolves ``{kind: gspo, ...}`` to ``<family>/gspo.py``."""

    default_kind: ClassVar[str | None] = None
    """The kind that settings without one are of, in a family where nearly all are of that kind."""
    RENAMED: ClassVar[Mapping[str, str]] = {}
    """New names of fields, by the names that they had before."""
    RENAMED_KINDS: ClassVar[Mapping[str, str]] = {}
    """Of a contract: new names of kinds, by the names that they had before."""

    @classmethod
    def family(cls) -> str:
        """The package that holds the members of this contract, ``posttrain.components.objectives`` for example."""
        contract = next(base for base in cls.__mro__ if Component in base.__bases__)
        return contract.__module__

    @classmethod
    def kinds(cls) -> list[str]:
        """Names of the members that ship with the package, in alphabetical order."""
        package = importlib.import_module(cls.family())
        shared: Sequence[str] = getattr(package, "SHARED", ())
        names = {module.name for module in pkgutil.iter_modules(package.__path__)}
        return sorted(name for name in names if name[0] != "_" and name not in shared)

    @classmethod
    def find(cls, kind: str) -> type[Self]:
        """The class of a kind; raises a validation error with the nearest name for an unknown one."""
        if kind in cls.RENAMED_KINDS:
            context = {"family": cls.__name__.lower(), "kind": kind, "new": cls.RENAMED_KINDS[kind]}
            raise PydanticCustomError("kind", "the {family} '{kind}' was renamed: write {new}", context)
        if "." not in kind and kind not in cls.kinds():
            context = {"family": cls.__name__.lower(), "kind": kind, "hint": nearest(kind, cls.kinds())}
            raise PydanticCustomError("kind", "no {family} named '{kind}'; {hint}", context)
        path = kind if "." in kind else f"{cls.family()}.{kind}"
        if not all(part.isidentifier() for part in path.split(".")):
            raise PydanticCustomError("kind", "'{path}' is not the name of a module", {"path": path})
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise
            context = {"path": path, "where": str(Path.cwd())}
            raise PydanticCustomError(
                "kind", "no module '{path}' on the import path (working in {where})", context
            ) from None
        except Exception as error:
            context = {"path": path, "why": f"{type(error).__name__}: {error}"}
            raise PydanticCustomError("kind", "the module '{path}' cannot be imported: {why}", context) from error
        members = [
            m for m in vars(module).values() if isinstance(m, type) and issubclass(m, cls) and m.__module__ == path
        ]
        if len(members) != 1:
            context = {"path": path, "family": cls.__name__, "count": str(len(members))}
            raise PydanticCustomError(
                "kind", "module '{path}' defines {count} subclasses of {family}; one is needed", context
            )
        return members[0]

    @classmethod
    def from_text(cls, text: str) -> Mapping[str, Any]:
        """Settings meant by a bare string: the kind itself, unless the family knows a shorter spelling."""
        return {"kind": text}

    @property
    def kind(self) -> str:
        """The name by which this component's class is found again."""
        return type(self).__module__.removeprefix(f"{self.family()}.")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Validate a concrete component as the dataclass it is, and a contract by looking up the kind."""
        if Component not in cls.__bases__:
            return handler(source)

        def parse(value: Any) -> Any:
            if isinstance(value, cls):
                return value
            if isinstance(value, str):
                value = cls.from_text(value)
            if isinstance(value, Mapping) and cls.default_kind is not None:
                value = {"kind": cls.default_kind, **value}
            if not isinstance(value, Mapping) or "kind" not in value:
                context = {"family": cls.__name__.lower(), "got": repr(value)[:80]}
                raise PydanticCustomError(
                    "kind", "write a kind of {family}, or {kind: ..., settings}; got {got}", context
                )
            member = cls.find(str(value["kind"]))
            settings = {key: item for key, item in value.items() if key != "kind"}
            return TypeAdapter(member).validate_python(settings)

        def dump(value: Any) -> dict[str, Any]:
            settings: dict[str, Any] = TypeAdapter(type(value)).dump_python(value, mode="json")
            return {"kind": value.kind, **settings}

        return core_schema.no_info_plain_validator_function(
            parse, serialization=core_schema.plain_serializer_function_ser_schema(dump)
        )
