"""Calling conventions of reward functions, detected from the names of their parameters.

plain   any of completion, task, answer, prompt, fields (or columns), trajectory: once for each completion. A function
        of one parameter takes the completion, under any name.
trl     any of prompts, completions, completion_ids, trainer_state, log_extra, log_metric, and columns of the data:
        once for each group, all by keyword, as TRL's trainers do.
verl    any of data_source, solution_str, ground_truth, extra_info: once for each completion.
openrlhf    queries with prompts and labels: once for each group. A query is the prompt as the model got it, and the
        completion.
openai  sample and item, as OpenAI's Python graders: once for each completion.
verifiers   any of prompt, completion, answer, task, state, info, with one of state and info among them without a
        default, or with a completion that is annotated as messages, or whose code reads it as messages
        (``completion[-1]["content"]``): once for each completion, which is a list of messages. A rubric is called as
        one such function (`posttrain.grading.rubrics`).

Only the parameters of the function are passed, or all values if it takes ``**kwargs``.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from posttrain.component import nearest
from posttrain.components.rewards import RewardContext
from posttrain.errors import UserError
from posttrain.types import Message, Task, Trajectory

Convention = Literal["plain", "trl", "verl", "openrlhf", "openai", "verifiers"]

NAMES: dict[Convention, tuple[str, ...]] = {
    "plain": ("completion", "task", "answer", "prompt", "fields", "columns", "trajectory"),
    "trl": ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"),
    "verl": ("data_source", "solution_str", "ground_truth", "extra_info"),
    "openrlhf": ("queries", "prompts", "labels"),
    "openai": ("sample", "item"),
    "verifiers": ("prompt", "completion", "answer", "task", "state", "info"),
}
OF_GROUPS: tuple[Convention, ...] = ("trl", "openrlhf")
"""Conventions of functions that score a group in one call."""
ANSWER_COLUMNS = ("answer", "solution", "ground_truth", "target", "label")
"""Columns of the reference answer in data sets for TRL. It is passed under those that a function takes."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function that are passed in a call."""

    convention: Convention
    names: tuple[str, ...]
    """Its parameters, positional ones first, without those that the recipe sets in ``arguments``."""
    required: tuple[str, ...]
    """Parameters without a default."""
    num_positional: int
    takes_rest: bool
    """Whether it has ``**kwargs``."""

    def arguments(self, available: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of one call. Raises `LookupError` for a missing column."""
        missing = [name for name in self.required if name not in available]
        if missing:
            raise LookupError(f"there is no column '{missing[0]}' in the data; {nearest(missing[0], available)}")
        by_position = self.names[: self.num_positional]
        by_name = {n: v for n, v in available.items() if (n in self.names or self.takes_rest) and n not in by_position}
        return [available[name] for name in by_position if name in available], by_name


def read_signature(function: Callable[..., Any], settings: Mapping[str, Any], spelling: str) -> Signature:
    """The parameters and the convention of a function. Raises `UserError` if no convention fits."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UserError(
            f"reward function '{spelling}': Python cannot inspect its parameters; wrap it in a def"
        ) from None
    takes_rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    unknown = [name for name in settings if name not in [p.name for p in named]]
    if unknown and not takes_rest:
        raise UserError(
            f"reward function '{spelling}': arguments has '{unknown[0]}', which is no parameter of the function; "
            f"{nearest(unknown[0], [p.name for p in named])}"
        )
    named = [p for p in named if p.name not in settings]
    names = [p.name for p in named]
    required = [p.name for p in named if p.default is p.empty]
    annotations = {p.name: str(p.annotation) for p in named}
    if "completion" in names and _reads_messages(function):
        annotations["completion"] = "Messages"
    convention = _convention(names, required, annotations)
    if convention != "trl":
        strange = [name for name in required if name not in NAMES[convention]]
        alone = convention == "plain" and len(required) == 1  # the completion, under any name
        if (strange and not alone) or not (names or takes_rest):
            raise UserError(_unfit(spelling, names, strange, convention))
        names = [name for name in names if name in NAMES[convention] or name in required]
    num_positional = sum(p.kind is p.POSITIONAL_ONLY and p.name in names for p in named)
    return Signature(convention, tuple(names), tuple(required), num_positional, takes_rest)


def _convention(names: Sequence[str], required: Sequence[str], annotations: Mapping[str, str]) -> Convention:
    if "queries" in names:
        return "openrlhf"
    if "sample" in names and "item" in names:
        return "openai"
    of_messages = any(word in annotations.get("completion", "") for word in ("Messages", "list", "List"))
    if "completions" not in names and (of_messages or not {"state", "info"}.isdisjoint(required)):
        return "verifiers"
    if any(name in NAMES["trl"] for name in names):
        return "trl"
    if any(name in NAMES["verl"] for name in names) and "completion" not in names:
        return "verl"
    return "plain"


def _reads_messages(function: Callable[..., Any]) -> bool:
    """Whether its code takes a message's content out of ``completion``, or out of what it goes through in it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return False  # no source, or not by itself, as of a lambda
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension)]
    messages = {"completion"} | {ast.unparse(loop.target) for loop in loops if _root(loop.iter) == "completion"}
    keyed = [
        n for n in ast.walk(tree) if isinstance(n, ast.Subscript) and ast.unparse(n.slice) in ("'content'", "'role'")
    ]
    return any(_root(node.value) in messages for node in keyed)


def _root(node: ast.expr) -> str | None:
    """The name that a value is taken from by ``[...]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _unfit(spelling: str, names: Sequence[str], strange: Sequence[str], convention: Convention) -> str:
    what = f"there is no value for '{strange[0]}'; {nearest(strange[0], NAMES[convention])}" if strange else ""
    takes = f"takes ({', '.join(names)})" if names else "takes no parameters, so it could not see what it scores"
    return (
        f"reward function '{spelling}' {takes}.{f' {what}.' if what else ''}\n"
        f"A function may take any of {', '.join(NAMES['plain'])}; or, as for TRL, {', '.join(NAMES['trl'])} and names "
        f"of columns; or, as for verl, {', '.join(NAMES['verl'])}; as for OpenRLHF, {', '.join(NAMES['openrlhf'])}; as "
        f"for OpenAI, {', '.join(NAMES['openai'])}; as for verifiers, {', '.join(NAMES['verifiers'])}. Settings of its "
        "own go into 'arguments'."
    )


@dataclass(frozen=True, slots=True)
class TrainerState:
    """The attributes of ``trainer_state`` for a function written for TRL."""

    global_step: int
    progress: float
    """Share of the stage that is done, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Log:
    """Values that a function written for TRL passes to ``log_extra`` and ``log_metric``."""

    num_completions: int
    columns: dict[str, list[Any]] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    def extra(self, column: str, values: Sequence[Any]) -> None:
        """Record a value for each completion."""
        values = list(values)
        if len(values) != self.num_completions:
            raise ValueError(f"log_extra('{column}') got {len(values)} values for {self.num_completions} completions")
        self.columns[column] = values

    def metric(self, name: str, value: Any) -> None:
        """Record a value for the group."""
        self.metrics[name] = value


def plain_values(trajectory: Trajectory, signature: Signature) -> dict[str, Any]:
    """Values by name for a plain function."""
    task = trajectory.task
    values = {
        "completion": trajectory.completion,
        "task": task,
        "answer": task.answer,
        "prompt": _prompt(task),
        "fields": dict(task.fields),
        "columns": dict(task.fields),
        "trajectory": trajectory,
    }
    if len(signature.required) == 1:
        values.setdefault(signature.required[0], trajectory.completion)
    return values


def verl_values(trajectory: Trajectory) -> dict[str, Any]:
    """Values by name for a function written for verl."""
    fields = dict(trajectory.task.fields)
    style = fields.get("reward_model")
    truth = style["ground_truth"] if isinstance(style, Mapping) and "ground_truth" in style else trajectory.task.answer
    return {
        "data_source": fields.get("data_source", trajectory.task.domain),
        "solution_str": trajectory.completion,
        "ground_truth": fields.get("ground_truth", truth),
        "extra_info": fields.get("extra_info", fields),
    }


def trl_values(
    trajectories: Sequence[Trajectory], signature: Signature, context: RewardContext, log: Log
) -> dict[str, Any]:
    """Values by name for a function written for TRL: lists with one value for each completion."""
    tasks = [trajectory.task for trajectory in trajectories]
    names = dict.fromkeys(name for task in tasks for name in task.fields)
    columns = {name: [task.fields.get(name) for task in tasks] for name in names}
    answer_names = ["answer", *(name for name in ANSWER_COLUMNS if name in signature.names)]
    answers = {name: [task.answer for task in tasks] for name in answer_names}
    return {
        **answers,
        **columns,
        "prompts": [_prompt(task) for task in tasks],
        "completions": [_completion(trajectory) for trajectory in trajectories],
        "completion_ids": [trajectory.completion_ids.tolist() for trajectory in trajectories],
        "trainer_state": TrainerState(context.step, context.progress),
        "log_extra": log.extra,
        "log_metric": log.metric,
    }


def openrlhf_values(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Values by name for a function written for OpenRLHF: lists of texts with one value for each completion."""
    prompts = [_text_before(trajectory) for trajectory in trajectories]
    texts = [trajectory.completion for trajectory in trajectories]
    return {
        "queries": [prompt + text for prompt, text in zip(prompts, texts, strict=True)],
        "prompts": prompts,
        "labels": [trajectory.task.answer for trajectory in trajectories],
    }


def openai_values(trajectory: Trajectory) -> dict[str, Any]:
    """Values by name for a Python grader of OpenAI: the completion, and the row."""
    text, task = trajectory.completion, trajectory.task
    prompt = _prompt(task)
    item = {"prompt" if isinstance(prompt, str) else "messages": prompt, **task.fields}
    if task.answer is not None:
        item.setdefault("reference_answer", task.answer)
    choice = {"index": 0, "message": Message(role="assistant", content=text), "finish_reason": trajectory.stop_reason}
    sample = {"output_text": text, "output_json": as_json(text), "output_tools": [], "choices": [choice]}
    return {"sample": sample, "item": item}


def verifiers_values(trajectory: Trajectory) -> dict[str, Any]:
    """Values by name for a function written for verifiers, whose prompts and completions are messages."""
    task = trajectory.task
    prompt = _prompt(task)
    messages = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
    info = task.fields.get("info")
    shared = {
        "prompt": messages,
        "completion": [Message(role="assistant", content=trajectory.completion)],
        "answer": task.answer or "",
        "task": task.fields.get("task", task.domain or "default"),
        "info": dict(info if isinstance(info, Mapping) else task.fields),
    }
    return {**shared, "state": {**shared, "is_truncated": trajectory.stop_reason == "length"}}


def as_json(text: str) -> Any:
    """The JSON value that a text is; None for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text_before(trajectory: Trajectory) -> str:
    """The text of the prompt as the model got it."""
    first = trajectory.segments[0]
    if first.actor == "prompt" and first.text:
        return first.text
    prompt = trajectory.task.prompt
    return prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in prompt)


def _prompt(task: Task) -> str | list[Message]:
    """The prompt, as a copy that a function may change."""
    if isinstance(task.prompt, str):
        return task.prompt
    return [Message(role=message["role"], content=message["content"]) for message in task.prompt]


def _completion(trajectory: Trajectory) -> str | list[Message]:
    """Text after a text prompt, one message after messages."""
    text = trajectory.completion
    return text if isinstance(trajectory.task.prompt, str) else [Message(role="assistant", content=text)]
