"""The component base: a frozen, validated dataclass that is configuration and behaviour in one.

A *family* is a package whose ``__init__`` defines one contract, a direct subclass of `Component`. A *component* is a
subclass of that contract in a module of the package; the module's name is the component's ``kind``. The directory is
the registry: adding a file adds a kind. Modules that are not members have a name with an underscore, or are listed in
the package's ``SHARED``.

A renamed field or kind is refused with an error that gives its new name. A class lists renamed fields in ``RENAMED``, a
contract renamed kinds in ``RENAMED_KINDS``.

    objectives/__init__.py      class Objective(Component)      the contract
    objectives/ppo_clip.py      class PPOClip(Objective)        kind: ppo_clip

In Python a component is made by its constructor. In YAML and on the command line it is ``{kind: ppo_clip, clip_low:
0.1}``, or just ``ppo_clip``, or another text that the family's `Component.from_text` parses (a path, for example). A
kind of the user's own is a file or an installed module with one subclass of the contract, ``mine.py`` or
``my_package.my_module``, or one of several by name, ``mine.py:MyReward``. `posttrain.component.user_code` decides when
such code may run.
"""

import ast
import difflib
import importlib
import pkgutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from inspect import cleandoc, get_annotations
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Self, TypeVar, dataclass_transform

from annotated_types import Le
from pydantic import ConfigDict, GetCoreSchemaHandler, NonNegativeInt, PositiveInt, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs, PydanticCustomError, core_schema

from posttrain.component import user_code
from posttrain.errors import UserError

T = TypeVar("T")

LARGEST = {
    **dict.fromkeys(("threads", "workers", "processes", "samplers", "learners", "scorers", "graders"), 1_024),
    **dict.fromkeys(("n", "samples", "group", "resamples", "heads", "kv_heads", "layers"), 10_000),
    **dict.fromkeys(("bins", "canaries", "checks", "copies", "hybrids", "mutants"), 10_000),
    **dict.fromkeys(("n_max", "others", "per_round", "probed", "tests", "traces"), 10_000),
    **dict.fromkeys(("rank", "slots", "width", "head_width", "head_dim", "vector_width"), 65_536),
    **dict.fromkeys(("condition", "dims", "k", "patch", "projection"), 65_536),
    **dict.fromkeys(
        (
            "size",
            "prompts",
            "batch",
            "mlp_width",
            "max_turns",
            "turns",
            "rollouts",
            "latents",
            "minibatches",
            "references",
        ),
        1_000_000,
    ),
    **dict.fromkeys(("context", "max_tokens", "vocabulary_size", "top_k", "window"), 100_000_000),
}
"""Bounds of counts by the names of their fields, far above any use: beyond them memory or threads run out before a run
could say so."""
MOST_COUNT = 10**12
"""Bound of counts that cost nothing until they are reached, where arithmetic is still exact. A test lists their names:
a new one is there or in `LARGEST`."""
_INTEGERS = (int, PositiveInt, NonNegativeInt, int | None, PositiveInt | None, NonNegativeInt | None)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Declares a validated, immutable, keyword-only dataclass that rejects unknown fields with a hint."""

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

    for name, annotation in list(get_annotations(cls).items()):
        if annotation in _INTEGERS and name != "seed":
            cls.__annotations__[name] = Annotated[annotation, Le(LARGEST.get(name, MOST_COUNT))]
    check: Any = classmethod(refuse_unknown)
    setattr(cls, "refuse_unknown", model_validator(mode="before")(check))  # noqa: B010
    described = _descriptions(cls)
    config = ConfigDict(extra="forbid", use_attribute_docstrings=described is None, allow_inf_nan=False)
    made: Any = dataclass(frozen=True, kw_only=True, config=config)(cls)
    for name, text in (described or {}).items():
        if name in made.__pydantic_fields__ and made.__pydantic_fields__[name].description is None:
            made.__pydantic_fields__[name].description = text
    return made  # type: ignore[no-any-return]


def _descriptions(cls: type) -> dict[str, str] | None:
    """The docstrings below the fields of a class of this package, by name; None for any other class.

    Pydantic finds them too, by going through all loaded modules for each class, which made most of the time of an
    import of a component.
    """
    module = sys.modules.get(cls.__module__)
    if not cls.__module__.startswith("posttrain.") or module is None or "<locals>" in cls.__qualname__:
        return None
    file = getattr(module, "__file__", None)
    definition = _classes_of(file).get(cls.__qualname__) if file else None
    if definition is None:
        return None
    found = {}
    for field, below in pairwise(definition.body):
        text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, str):
            found[field.target.id] = cleandoc(text)
    return found


@lru_cache(maxsize=8)
def _classes_of(file: str) -> dict[str, ast.ClassDef]:
    """The classes at the top of a file, by name."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def renamed(owner: type) -> Mapping[str, str]:
    """New names of the renamed fields of a class, by old name."""
    found: Mapping[str, str] = getattr(owner, "RENAMED", {})
    return found


def nearest(name: str, names: Iterable[str]) -> str:
    """The last clause of an error about an unknown name: the nearest known name, or all of them."""
    known = sorted(map(str, names))
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
    swapped = [other for other in close if sorted(other) == sorted(name)]  # letters in another order
    close = swapped or close
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known) or 'none'}"


class Component:
    """Base of every family's contract; resolves ``{kind: gspo, ...}`` to ``<family>/gspo.py``."""

    default_kind: ClassVar[str | None] = None
    """The kind of settings without one, in a family with a usual kind."""
    RENAMED: ClassVar[Mapping[str, str]] = {}
    """New names of renamed fields, by old name."""
    RENAMED_KINDS: ClassVar[Mapping[str, str]] = {}
    """Of a contract: new names of renamed kinds, by old name."""
    own_kind: ClassVar[str] = ""
    """Kind of a class in a file or module of the user's, as the recipe has it."""

    @classmethod
    def family(cls) -> str:
        """The package that holds the members of this contract, ``posttrain.components.objectives`` for example."""
        contract = next(base for base in cls.__mro__ if Component in base.__bases__)
        return contract.__module__

    @classmethod
    def kinds(cls) -> list[str]:
        """Names of the members that ship with the package, in alphabetical order."""
        return list(_kinds_of(cls.family()))

    @classmethod
    def find(cls, kind: str) -> type[Self]:
        """The class of a kind; raises a validation error with the nearest name for an unknown one."""
        if kind in cls.RENAMED_KINDS:
            context = {"family": cls.__name__.lower(), "kind": kind, "new": cls.RENAMED_KINDS[kind]}
            raise PydanticCustomError("kind", "the {family} '{kind}' was renamed: write {new}", context)
        if user_code.is_user_kind(kind):
            return cls._find_own(kind)
        if kind not in _kinds_of(cls.family()):
            context = {"family": cls.__name__.lower(), "kind": kind, "hint": nearest(kind, cls.kinds())}
            raise PydanticCustomError("kind", "no {family} named '{kind}'; {hint}", context)
        module = importlib.import_module(f"{cls.family()}.{kind}")
        return cls._only_member(module, kind)

    @classmethod
    def _find_own(cls, kind: str) -> type[Self]:
        """The class of a kind that is a file or module of the user's."""
        source, _, name = kind.partition(":")
        try:
            user_code.require(kind)
            if not user_code.defines_class(kind):
                context = {"path": kind, "family": cls.__name__}
                raise PydanticCustomError("kind", "'{path}' has no class in it that subclasses {family}", context)
            module = _load_own(source)
        except PydanticCustomError:
            raise
        except UserError as error:
            raise PydanticCustomError("kind", "{why}", {"why": str(error)}) from None
        except Exception as error:
            context = {"path": source, "why": f"{type(error).__name__}: {error}"}
            raise PydanticCustomError("kind", "the module '{path}' cannot be imported: {why}", context) from error
        member = cls._only_member(module, kind, name)
        member.own_kind = kind
        return member

    @classmethod
    def _only_member(cls, module: ModuleType, kind: str, name: str = "") -> type[Self]:
        """The subclass of the contract that a module defines, of several the one with the name."""
        members = [
            m
            for m in vars(module).values()
            if isinstance(m, type) and issubclass(m, cls) and m.__module__ == module.__name__
            if name in ("", m.__name__)
        ]
        if len(members) != 1:
            context = {"path": kind, "family": cls.__name__, "count": str(len(members))}
            raise PydanticCustomError(
                "kind", "module '{path}' defines {count} subclasses of {family}; one is needed", context
            )
        return members[0]

    @classmethod
    def from_text(cls, text: str) -> Mapping[str, Any]:
        """Settings from a bare string: the kind, unless the family parses another text."""
        return {"kind": text}

    @classmethod
    def from_items(cls, items: Sequence[Any]) -> Any:
        """Settings from a bare list, in families that have a member made of several; returned as it is elsewhere."""
        return items

    @property
    def user_code(self) -> tuple[str, ...]:
        """Code of the user's that this component runs besides its own class: ``mine.py:score``."""
        return ()

    @property
    def follows_progress(self) -> bool:
        """Whether it depends on the share of the stage's steps that is done, and so on how many steps there are."""
        return False

    @property
    def kind(self) -> str:
        """The name of this component's class in its family; see `find`."""
        return self.own_kind or type(self).__module__.removeprefix(f"{self.family()}.")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Validates a concrete component as a dataclass, and a contract by its kind."""
        if Component not in cls.__bases__:
            return handler(source)

        def parse(value: Any) -> Any:
            if isinstance(value, cls):
                return value
            if isinstance(value, str):
                value = cls.from_text(value)
            elif isinstance(value, list | tuple):
                value = cls.from_items(value)
            if isinstance(value, Mapping) and cls.default_kind is not None:
                value = {"kind": cls.default_kind, **value}
            if not isinstance(value, Mapping) or "kind" not in value:
                context = {"family": cls.__name__.lower(), "got": repr(value)[:80]}
                raise PydanticCustomError(
                    "kind", "write a kind of {family}, or {kind: ..., settings}; got {got}", context
                )
            kind, settings = str(value["kind"]), {key: item for key, item in value.items() if key != "kind"}
            if user_code.is_user_kind(kind) and user_code.is_unread(kind):
                return _unread(cls, kind, settings)
            member = cls.find(kind)
            return TypeAdapter(member).validate_python(settings)

        def dump(value: Any) -> dict[str, Any]:
            if isinstance(value, Unread):
                return {"kind": value.own_kind, **value.unread_settings}
            settings: dict[str, Any] = TypeAdapter(type(value)).dump_python(value, mode="json")
            return {"kind": value.kind, **settings}

        return core_schema.no_info_plain_validator_function(
            parse, serialization=core_schema.plain_serializer_function_ser_schema(dump)
        )


@cache
def _kinds_of(family: str) -> tuple[str, ...]:
    """Names of the members of a package, which are listed once: every setting of every recipe is looked up in it."""
    package = importlib.import_module(family)
    shared: Sequence[str] = getattr(package, "SHARED", ())
    names = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return tuple(sorted(name for name in names if name[0] != "_" and name not in shared))


class Unread:
    """A component of the user's whose code was not run: its kind and its settings, as they were written."""

    own_kind: ClassVar[str]
    kind: str
    unread_settings: Mapping[str, Any]


def _unread(contract: type[T], kind: str, settings: Mapping[str, Any]) -> T:
    """A component that stands for one of the user's in a recipe that is only read."""
    component: T = object.__new__(type("Unread", (Unread, contract), {"own_kind": kind}))
    object.__setattr__(component, "unread_settings", settings)
    return component


def _load_own(source: str) -> ModuleType:
    """The file or module of a kind. Raises a validation error for one that is not there."""
    where = str(Path.cwd())
    if user_code.is_path(source):
        if not source.endswith(".py"):  # a recipe that is named on the command line could be Python too
            raise PydanticCustomError("kind", "a kind is a file that ends in .py; got '{path}'", {"path": source})
        file = user_code.file_of(source)
        if not file.is_file():
            raise PydanticCustomError("kind", "no file '{path}' (working in {where})", {"path": source, "where": where})
        content = file.read_bytes()
        loaded = sys.modules.get(user_code.module_name(file))
        if loaded is None or getattr(loaded, "__source__", None) != content:
            loaded = user_code.load_file(file, content)
            loaded.__dict__["__source__"] = content
        return loaded
    if not all(part.isidentifier() for part in source.split(".")):
        raise PydanticCustomError("kind", "'{path}' is not the name of a module", {"path": source})
    if not user_code.find_code(source).files:  # importing would run the packages around what is not there
        raise PydanticCustomError(
            "kind",
            "no module '{path}' is installed; for a file write kind: {file} (working in {where})",
            {"path": source, "file": f"{source.replace('.', '/')}.py", "where": where},
        )
    return importlib.import_module(source)
