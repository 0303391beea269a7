"""Settings that follow the model where a recipe gets another one than its own.

The numbers of a setting are measured for its model, which ships with the package and has 800,000 weights. Where a
change names a model folder that is much larger, the learning rates, warm-ups and lengths that nobody wrote become
``auto``, the held-out tasks are answered early once, and a chat model gets its template. A run replaces ``auto`` by
numbers for that model (`posttrain.runs.fitting`).
"""

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

from posttrain.errors import UserError
from posttrain.errors.foreign import read_json
from posttrain.models import hub
from posttrain.models.sources import find_model
from posttrain.recipes.published import FAMILIES

LARGE: Final = 40_000_000
"""Bytes of weights from which a model is no longer of the bundled one's kind: 10 million numbers of four bytes."""
SOURCE: Final = ("models", "policy", "source")
EARLY: Final = 3
"""Step of the first evaluation on held-out tasks: early, so that little is lost if the policy collapses."""
MOST_SETTINGS: Final = 16 << 20
"""Most bytes of a tokenizer's settings, and of a GGUF file's metadata, in which a chat template is looked for."""
WEIGHTS: Final = ("*.safetensors", "*.gguf")

Keys = tuple[str, ...]


def follow_model(before: Mapping[str, Any], tree: Mapping[str, Any], written: Collection[str]) -> None:
    """Write ``auto`` into a recipe's tree, in place, for settings that were made for another model.

    Args:
        before: The tree that was changed.
        tree: The changed tree.
        written: Dotted paths that the user wrote.
    """
    if not _is_large(_at(tree, SOURCE)) or _is_large(_at(before, SOURCE)):
        return
    for path in _paths(tree):
        chosen = any(f"{'.'.join(path)}.".startswith(f"{own}.") for own in written)
        if not chosen and _at(before, path) == _at(tree, path):
            _parent(tree, path)[path[-1]] = "auto"
    policy = _at(tree, SOURCE[:-1])
    if "models.policy.chat" not in written and isinstance(policy, MutableMapping) and _has_template(policy["source"]):
        policy["chat"] = True
    if "evaluation.early" not in written and isinstance(tree.get("evaluation"), MutableMapping):
        tree["evaluation"]["early"] = EARLY


def _paths(tree: Mapping[str, Any]) -> Iterator[Keys]:
    """Paths of rates, warm-ups and lengths that the rule has numbers for."""
    stages = tree.get("stages")
    for name, stage in stages.items() if isinstance(stages, Mapping) else ():
        if not isinstance(stage, Mapping):
            continue
        for role, part in _learners(stage):
            for leaf in (("optimizer", "lr"), ("schedule", "warmup")):
                path = ("stages", name, *part, *leaf)
                if _is_policys(role, tree) and _at(tree, path) is not None:
                    yield path
        path = ("stages", name, "rollout", "sampling", "max_tokens")
        if _at(tree, path) is not None:
            yield path


def _learners(stage: Mapping[str, Any]) -> Iterator[tuple[str, Keys]]:
    """The role of each learner of a stage, and its path in the stage."""
    for field in sorted(field for kind, field in FAMILIES if kind == stage.get("kind")):
        if field == "by_role":
            yield from ((role, (field, role, "learner")) for role in stage.get(field) or ())
        else:
            yield "critic" if field == "critic_learner" else stage.get("role", "policy"), (field,)


def _is_policys(role: str, tree: Mapping[str, Any]) -> bool:
    """Whether a role has the policy's model, or a copy of it."""
    seen: set[str] = set()
    while role != "policy" and role not in seen:
        seen.add(role)
        role = str(_at(tree, ("models", role, "source"))).removeprefix("role:")
    return role == "policy"


def _at(tree: Any, path: Keys) -> Any:
    """The value at a path; None where there is none."""
    for part in path:
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _parent(tree: Any, path: Keys) -> MutableMapping[str, Any]:
    """The mapping that holds the last part of a path."""
    for part in path[:-1]:
        tree = tree[part]
    assert isinstance(tree, MutableMapping), "the path was found in it"
    return tree


def _has_template(source: str) -> bool:
    """Whether a model's folder or GGUF file has a chat template."""
    folder = hub.download(source, hub.SETTINGS) if hub.is_hub_name(source) else find_model(source)
    for file in [folder] if folder.is_file() else sorted(folder.glob("*.gguf"))[:1]:
        if not any(folder.glob("*.safetensors*")) and not (folder / "tokenizer.json").is_file():
            return _names_template(file)
    settings = folder / "tokenizer_config.json"
    if (folder / "chat_template.jinja").is_file() or not settings.is_file():
        return (folder / "chat_template.jinja").is_file()
    try:
        return bool(read_json(settings, MOST_SETTINGS).get("chat_template"))
    except UserError:
        return False  # loading the model reports what is wrong with its folder


def _names_template(file: Path) -> bool:
    """Whether the metadata of a GGUF file, which are its first bytes, name a chat template."""
    try:
        with file.open("rb") as opened:
            return b"tokenizer.chat_template" in opened.read(MOST_SETTINGS)
    except OSError:
        return False  # loading the model reports it


def _is_large(source: Any) -> bool:
    """Whether a model's source is a file or folder with many weights; an adapter's base counts in its own folder.

    A model of the hub counts as large, whatever its size.
    """
    if not isinstance(source, str):
        return False
    try:
        if hub.is_hub_name(source):
            return True
        path = find_model(source)
        files = [path] if path.is_file() else [file for pattern in WEIGHTS for file in path.glob(pattern)]
        return sum(file.stat().st_size for file in files) >= LARGE
    except (UserError, OSError, RuntimeError, ValueError):
        return False  # loading the model reports what is wrong with its folder
