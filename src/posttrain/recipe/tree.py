"""A recipe: one frozen tree that says all of a run. Recipes are changed only with `dataclasses.replace`, which
validates again; on the command line and in YAML the same tree is spelled with dotted paths.

    posttrain run grpo rollout.n=16 objective.clip_high=0.28 tasks=mine.jsonl

A path is looked up from the top of the recipe first (``tasks``, ``models.policy.lora``, ``stages.rl.steps``), then
from the name of a stage (``rl.steps``), then inside the only stage that has it (``steps``). The value is YAML.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from posttrain.component import frozen, nearest
from posttrain.components.alarms import Alarm
from posttrain.components.alarms.divergence import Divergence
from posttrain.components.alarms.duplicates import Duplicates
from posttrain.components.alarms.entropy_collapse import EntropyCollapse
from posttrain.components.alarms.grader_errors import GraderErrors
from posttrain.components.alarms.gradient_spike import GradientSpike
from posttrain.components.alarms.held_out_falls import HeldOutFalls
from posttrain.components.alarms.length import Length
from posttrain.components.alarms.not_finite import NotFinite
from posttrain.components.alarms.repeated_text import RepeatedText
from posttrain.components.alarms.reward_collapse import RewardCollapse
from posttrain.components.alarms.sampler_gap import SamplerGap
from posttrain.components.alarms.truncation import Truncation
from posttrain.components.alarms.zero_variance import ZeroVariance
from posttrain.components.rewards import Reward
from posttrain.components.rollouts import Rollout
from posttrain.components.search import Search
from posttrain.components.shapes import Shape
from posttrain.components.tasks import Tasks
from posttrain.engines import Engine, Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.serving import Endpoint, check_url, is_url
from posttrain.stages import Stage

ALARMS: Mapping[str, Alarm] = {
    alarm.kind: alarm
    for alarm in (
        NotFinite(),
        EntropyCollapse(),
        RewardCollapse(),
        HeldOutFalls(),
        Length(),
        Truncation(),
        ZeroVariance(),
        Duplicates(),
        RepeatedText(),
        GraderErrors(),
        Divergence(),
        GradientSpike(),
        SamplerGap(),
    )
}

Share = Annotated[float, Field(gt=0.0, lt=1.0)]


@frozen
class LoRA:
    """Low-rank adapters on chosen projections. Hu et al. 2021, arXiv:2106.09685."""

    rank: PositiveInt = 16
    alpha: PositiveFloat = 32.0
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Names of the projections that get an adapter."""


@frozen
class Model:
    """The model that plays a role."""

    source: str
    """A bundled name (``pebble``), a Hugging Face folder, ``role:NAME`` for a copy of another role's model as it is
    when the stage begins (a reference, a critic's body), ``made`` for one that a stage makes (a merge), ``new`` for
    random weights of the given `shape`, or the address of an OpenAI-compatible server (``http://127.0.0.1:8000/v1``),
    whose model can write text for a reward or a rollout and nothing else."""
    shape: Shape | None = None
    """Kind and sizes of a ``new`` model."""
    trained: bool = False
    """Whether stages update it."""
    head: Literal["language", "value", "reward"] = "language"
    """``language`` gives next-token logits; ``value`` one number a token, of the state before it; ``reward`` one number
    a token, of the text up to its end."""
    lora: LoRA | None = None
    """Train adapters only; None trains every weight."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of weights and arithmetic."""
    context: PositiveInt | None = None
    """Longest sequence in tokens; None takes the model's own limit."""
    endpoint: Endpoint | None = None
    """How a model that is served elsewhere is asked; None takes the defaults."""

    @property
    def is_remote(self) -> bool:
        """Whether it is served elsewhere."""
        return is_url(self.source)

    @model_validator(mode="after")
    def check_endpoint(self) -> Self:
        """Refuse settings that an endpoint's model does not have, and those of an endpoint for any other."""
        if not self.is_remote:
            if self.endpoint is not None:
                raise PydanticCustomError("kind", "endpoint is set, but source is no address (http://..., https://...)")
            return self
        check_url(self.source)
        if self.trained or self.head != "language" or self.shape or self.lora or self.context:
            raise PydanticCustomError(
                "kind", "source is an endpoint, which writes text only: trained, head, shape, lora and context are out"
            )
        return self


@frozen
class Evaluation:
    """How a run is judged: on tasks that it never trains on."""

    tasks: Tasks | None = None
    """A test set of its own; when left out, tasks are held out of the recipe's tasks by key."""
    holdout: PositiveInt = 200
    """Number of tasks held out (at most half of what there is, which is said when it happens)."""
    verifier: Reward | None = None
    """Judges the answers; when left out, the training reward does, and the report says so."""
    correct_at: float = 1.0
    """A score of at least this counts as a right answer."""
    every: NonNegativeInt = 0
    """Steps between evaluations inside a stage; 0 evaluates before the first stage and after each one only."""
    samples: NonNegativeInt = 0
    """Sampled answers per task for pass@k, beside the greedy one; 0 is greedy only."""
    sampling: Sampling | None = None
    """How the sampled answers are drawn (the greedy ones share its limits and stops); when left out, as in the last
    stage that samples."""
    rollout: Rollout | None = None
    """The world in which tasks are attempted, if they take several turns; when left out, that of the last stage that
    samples."""
    search: Search | None = None
    """Answers once more by a search with a value model, beside the greedy answers; None does not."""

    @field_validator("search")
    @classmethod
    def refuse_oracles(cls, search: Search | None) -> Search | None:
        """An answer must not be chosen by looking at how it is judged."""
        if search is not None and search.judges:
            raise PydanticCustomError(
                "search", "a search that looks at rewards cannot answer held-out tasks; give it a value_role"
            )
        return search


@frozen
class Checkpoints:
    """When a run saves what it needs to go on bit for bit."""

    every_steps: NonNegativeInt = 50
    """Steps between checkpoints; 0 for none by step."""
    every_seconds: PositiveFloat = 300.0
    """Longest time without one."""
    keep: PositiveInt = 2
    """Number of newest checkpoints that are kept."""


@frozen
class Recipe:
    """Everything that defines a run, except where it is written."""

    name: str
    """Names the run's folder."""
    models: Mapping[str, Model]
    """By role: ``policy``, ``reference``, ``critic``, ``teacher``, ``judge``, ..."""
    tasks: Tasks
    """The problems, shared by all stages that do not bring their own."""
    stages: Mapping[str, Stage]
    """By name, in order."""
    engine: Engine = Native(slots=256)
    """What samples."""
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    alarms: Mapping[str, Alarm] = field(default_factory=lambda: dict(ALARMS))
    """What watches the run, by name; all that there are, unless said otherwise. Each has its `action`."""
    seed: NonNegativeInt = 0
    """Decides every draw of the run."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: PositiveInt | None = None
    """CPU threads; None takes all cores. A resumed run must use as many as the one it continues."""


SHORTHANDS = {"model": "models.policy.source", "lr": "learner.optimizer.lr"}
"""Short spellings of paths that everybody types."""

_RECIPE: TypeAdapter[Recipe] = TypeAdapter(Recipe)


def to_tree(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain dicts, lists and scalars; `from_tree` gives the same recipe back."""
    tree: dict[str, Any] = _RECIPE.dump_python(recipe, mode="json")
    return tree


def from_tree(tree: Any, *, places: Mapping[str, str] | None = None) -> Recipe:
    """Validate a tree. Raises `UserError` that names each wrong path, what it holds and what it may hold.

    `places` maps dotted paths to where they were written (``mine.yaml line 7``), for the message.
    """
    try:
        return _RECIPE.validate_python(tree)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    raise UserError("\n".join(_explain(item, tree, places or {}) for item in errors))


def _explain(error: Any, tree: Any, places: Mapping[str, str]) -> str:
    """One line for one validation error: the dotted path, where it was written, what is wrong."""
    kind, path, context = error["type"], [str(part) for part in error["loc"]], error.get("ctx", {})
    what, at = error["msg"], [*path, context["key"]] if "key" in context else path
    if kind not in ("unknown_field", "kind", "missing", "secret"):
        what += f", got {error['input']!r:.80}"
    if kind == "literal_error" and path[-1] == "[key]":
        *path, key, _ = path
        known = re.findall("'(.+?)'", context["expected"])
        at, what = [*path, key], f"no key '{key}'; {nearest(key, known)}"
    elif kind == "missing":
        at = path[:-1]  # it was written nowhere; what it is missing from was
        what += _mistyped(tree, at)
    elif kind == "kind" and "got" in context:
        what += _mistyped(tree, at)
    where = None if kind == "secret" else _place(at, places)  # a place may repeat what was written there
    return f"{'.'.join(path) or 'recipe'}{f' ({where})' if where else ''}: {what}"


def _place(at: Sequence[str], places: Mapping[str, str]) -> str | None:
    """Where something was written: itself, or else what it is a part of, or else the first part of it that was."""
    around = [".".join(at[:depth]) for depth in range(len(at), 0, -1)]
    written = [places[outer] for outer in around if outer in places]
    inside = [place for inner, place in places.items() if around and inner.startswith(f"{around[0]}.")]
    return next(iter([*written, *inside]), None)


def _mistyped(tree: Any, at: Sequence[str]) -> str:
    """A hint for an entry that lacks something: its name may have been meant to be that of another one beside it."""
    for part in at[:-1]:
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    others = [name for name in tree if name != at[-1]] if at and isinstance(tree, Mapping) else []
    close = get_close_matches(at[-1], others, n=1, cutoff=0.7) if others else []
    return f"; did you mean '{close[0]}'?" if close else ""


def override(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """Apply ``path=value`` and ``path+=value`` (append to a list) in order, and validate once at the end."""
    tree = to_tree(recipe)
    places: dict[str, str] = {}
    for change in changes:
        matched = re.fullmatch(r"([\w.\-]+?)(\+?=)(.*)", change, flags=re.DOTALL)
        if not matched:
            raise UserError(f"'{change}' is not an override; write path=value, for example rollout.n=16")
        path, operator, text = matched.groups()
        target = resolve(tree, path)
        assign(tree, target, parse_value(text), append=operator == "+=")
        full = ".".join(target)
        places = {at: place for at, place in places.items() if not at.startswith(f"{full}.")}
        places[full] = f"from '{change}'"
    return from_tree(tree, places=places)


def parse_value(text: str) -> Any:
    """Read a value as YAML 1.2: numbers, booleans, lists and mappings, else the text itself."""
    from ruamel.yaml.error import YAMLError

    from posttrain.recipe.plain_yaml import load_yaml

    try:
        value, _ = load_yaml(text, f"the value {text[:60]!r}")
    except YAMLError:
        return text
    return text if value is None and text.strip() not in ("null", "~", "") else value


def resolve(tree: Mapping[str, Any], path: str) -> list[str]:
    """The full path, from the top of the tree, that a possibly shortened dotted path means."""
    parts = path.split(".")
    if parts[0] in SHORTHANDS:
        parts = SHORTHANDS[parts[0]].split(".") + parts[1:]
    if parts[0] in tree:
        return parts
    # What an earlier setting put there may be anything; it is refused where the tree is made into a recipe.
    stages = tree["stages"] if isinstance(tree["stages"], Mapping) else {}
    stages = {name: stage for name, stage in stages.items() if isinstance(stage, Mapping)}
    if parts[0] in stages:
        return ["stages", *parts]
    owners = [name for name, stage in stages.items() if parts[0] in stage]
    if len(owners) == 1:
        return ["stages", owners[0], *parts]
    if owners:
        spelled = " or ".join(f"{name}.{path}" for name in owners)
        raise UserError(f"'{path}' is in {len(owners)} stages of this recipe; write {spelled}")
    known = {*tree, *stages, *SHORTHANDS, *(field for stage in stages.values() for field in stage if field != "kind")}
    named = ", ".join(map(str, stages))
    raise UserError(f"no field '{parts[0]}' in this recipe or its stages ({named}); {nearest(parts[0], known)}")


def assign(tree: dict[str, Any], path: Sequence[str], value: Any, *, append: bool = False) -> None:
    """Set one leaf or subtree of a tree in place. Setting a component's ``kind`` drops the settings of the old kind."""
    node: Any = tree
    for depth, part in enumerate(path[:-1]):
        if isinstance(node, dict) and node.get(part) is None:
            node[part] = {}
        node = _descend(node, part, path[: depth + 1])
        if isinstance(node, str) and (whole := to_tree(from_tree(tree))) != tree:
            tree.update(whole)  # text that stands for a component is spelled out before a setting of it is changed
            return assign(tree, path, value, append=append)
    last = path[-1]
    if not isinstance(node, dict):
        _descend(node, last, path)
        node[int(last)] = value
    elif append:
        node[last] = [*(node.get(last) or []), *(value if isinstance(value, list) else [value])]
    elif last == "kind" and node.get("kind") != value:
        node.clear()
        node["kind"] = value
    else:
        node[last] = value


def _descend(node: Any, part: str, path: Sequence[str]) -> Any:
    """The child of a mapping or list; raises `UserError` where there is none."""
    if isinstance(node, list) and part.isdigit() and int(part) < len(node):
        return node[int(part)]
    if isinstance(node, dict) and part in node:
        return node[part]
    known = node if isinstance(node, dict) else [str(i) for i in range(len(node))] if isinstance(node, list) else []
    hint = nearest(part, map(str, known)) if known else f"{'.'.join(path[:-1])} holds {node!r}, which has no fields"
    raise UserError(f"no '{'.'.join(path)}' in this recipe; {hint}")
