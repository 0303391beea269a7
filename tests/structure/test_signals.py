"""Signals are values: nobody declares, makes or takes apart their names as text."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import posttrain
from posttrain.signals import Name
from tests.structure.package import uncollected

SOURCE = Path(posttrain.__file__).parent
ENDS = tuple(f"_{name}" for name in (*get_args(Name), "kl"))
TAKES_APART = ("removesuffix", "removeprefix", "endswith", "startswith", "partition", "rpartition", "split", "rsplit")


def strings_for_signals(source: str) -> Iterator[str]:
    """Places where text stands for a signal, or is taken apart for one."""
    for node in ast.walk(ast.parse(source)):
        found = ""
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[-1], ast.Constant):
            found = "made" if str(node.values[-1].value).endswith(ENDS) and len(node.values) > 1 else ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKES_APART:
            texts = [x.value for a in node.args for x in ast.walk(a) if isinstance(x, ast.Constant)]
            owner = node.func.value
            named = isinstance(owner, ast.Name) and owner.id in ("need", "signal")
            found = "taken apart" if named or any(text in ENDS for text in texts) else ""
        elif isinstance(node, ast.FunctionDef) and node.name == "needs":
            found = "declared" if _of_text(node.returns) else ""
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "needs":
            found = "declared" if _of_text(node.annotation) else ""
        elif isinstance(node, ast.arg) and node.arg in ("needs", "signals"):
            found = "asked for" if _of_text(node.annotation) else ""
        if found:
            yield f"line {node.lineno}: the name of a signal is {found}"


def _of_text(annotation: ast.expr | None) -> bool:
    """Whether a set of text, or a mapping by text, is declared."""
    return annotation is not None and bool(re.search(r"(set|Mapping|dict)\[str", ast.unparse(annotation)))


@pytest.mark.parametrize(
    "source",
    [
        'needs: ClassVar[frozenset[str]] = frozenset({"entropy"})',
        "@property\ndef needs(self) -> frozenset[str]: ...",
        'x = f"{self.role}_logp"',
        'x = f"{self.role}_{self.direction}_kl"',
        'role = name.removesuffix("_kl")',
        'if name.endswith(("_logp", "_velocity")): pass',
        '_, _, name = need.rpartition("_")',
        "def evaluate(packed, needs: frozenset[str]): ...",
        "def in_reward(self, trajectory, signals: Mapping[str, FloatArray]): ...",
    ],
)
def test_what_is_forbidden_is_found(source: str) -> None:
    assert list(strings_for_signals(source))


def test_signals_are_never_text() -> None:
    """But in `signals.py`, which gives their columns names."""
    found = {}
    with uncollected():
        for path in sorted(SOURCE.rglob("*.py")):
            found[str(path.relative_to(SOURCE))] = list(strings_for_signals(path.read_text(encoding="utf-8")))
    found.pop("signals.py")
    assert len(found) > 300
    assert not {place: lines for place, lines in found.items() if lines}
