"""What reads something that others wrote does so where every failure of the parser is caught."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import posttrain
from tests.structure.package import Package

ROOT = Path(posttrain.__file__).parent
PARSERS = {
    "json.loads",
    "json.load",
    "load_file",
    "safe_open",
    "Image.open",
    "torch.load",
    "yaml.load",
    "tomllib.loads",
    "toml.loads",
}
FORBIDDEN = {"pickle.load", "torch.load", "yaml.unsafe_load", "np.load"}
ENOUGH = {"RecursionError", "Exception", "BaseException"}
OWN = {
    "errors/foreign.py": "the reader itself",
    "grading/workers/wire.py": "a pipe between two processes of this program",
    "runs/speed/children.py": "a pipe between two processes of this program",
    "runs/speed/_models.py": "a model that has just been made",
    "runs/speed/workloads.py": "the config of a model that has just been made",
    "components/environments/_foreign/bfcl_worker.py": "files of an installed package, and lines of this program",
    "components/environments/_foreign/__init__.py": "loads code that has consent",
    "recipes/functions.py": "loads code that has consent",
    "policies/_template_worker.py": "a pipe between two processes of this program",
    "policies/_templates.py": "a pipe between two processes of this program",
    "datasets/draw_entries.py": "a pipe between two processes of this program",
    "runs/one_run.py": "a plan that `posttrain compare` has just written",
    "recipes/pages/experiments.py": "measurements of this repository",
    "cli/sandbox.py": "measurements of this repository",
    "policies/folder.py": "the config of a model that has been read by `read_json`",
    "policies/merging.py": "the config of a model that has been read by `read_json`",
    "policies/editing.py": "the header of a file that has been opened by `open_weights`",
    "engines/_schemas.py": "the tokenizer of a model that has been read",
    "evaluation/generation.py": "settings that were made into JSON on the same line",
}
"""Where a parser is called without a guard, and why it may be."""


LAST_PARTS = {name.rpartition(".")[2] for name in PARSERS | FORBIDDEN | {"guard"}}


def named(call: ast.Call) -> str:
    """``json.loads`` of a call, or its bare name; only the last part of what cannot be one of ours."""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return ast.unparse(call.func) if last in LAST_PARTS else str(last)


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Every module of the package, parsed."""
    package = Package(ROOT)
    return {package.files[module]: tree for module, tree in package.trees.items()}


def unguarded(node: ast.AST, guarded: bool = False) -> Iterator[ast.Call]:
    """Calls of parsers that are neither in a `guard` nor in a `try` that catches what they raise."""
    if isinstance(node, ast.Call) and named(node) in PARSERS and not guarded:
        yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        guarded = False
    inside = guarded
    if isinstance(node, ast.With | ast.AsyncWith):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        inside = guarded or any(named(call) == "guard" for call in calls)
    for field, value in ast.iter_fields(node):
        caught = isinstance(node, ast.Try) and field == "body" and any(map(_enough, node.handlers))
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from unguarded(child, inside or caught)


def _enough(handler: ast.ExceptHandler) -> bool:
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(one is None or ast.unparse(one) in ENOUGH for one in types)


def found_in(source: str) -> list[int]:
    return [call.lineno for call in unguarded(ast.parse(source))]


def test_the_law_sees_what_is_not_guarded() -> None:
    assert found_in("json.loads(text)") == [1]
    assert found_in("try:\n    json.loads(text)\nexcept ValueError:\n    pass") == [2]
    assert found_in("try:\n    json.loads(text)\nexcept (ValueError, RecursionError):\n    pass") == []
    assert found_in("with guard('a'):\n    load_file(path)") == []
    assert found_in("with guard('a'):\n    def later():\n        load_file(path)") == [3]
    assert found_in("try:\n    pass\nexcept Exception:\n    json.loads(text)") == [4]


def test_every_parser_is_guarded(trees: dict[Path, ast.Module]) -> None:
    wrong, seen = [], set[str]()
    for path, tree in trees.items():
        name = path.relative_to(ROOT).as_posix()
        places = [call.lineno for call in unguarded(tree)]
        seen.update([name] if places else [])
        wrong += [f"{name}:{line}" for line in places if name not in OWN]
    assert wrong == [], "read it with posttrain.errors.foreign, or inside of its guard"
    assert OWN.keys() <= seen, "a file that no longer calls a parser without a guard"


def test_nothing_that_makes_objects_reads_files(trees: dict[Path, ast.Module]) -> None:
    for path, tree in trees.items():
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert not {named(call) for call in calls if not only_values(call)} & FORBIDDEN, path


def only_values(call: ast.Call) -> bool:
    """Whether a call of `torch.load` reads tensors and plain values alone."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    return ast.unparse(given["weights_only"]) == "True" if "weights_only" in given else False
