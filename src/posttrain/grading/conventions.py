"""How a user's function wants to be called, told from the names of its parameters.

plain   any of completion, task, answer, prompt, fields (or columns), trajectory: once for each completion. A function
        of one parameter takes the completion, whatever the parameter is called.
trl     any of prompts, completions, completion_ids, trainer_state, log_extra, log_metric, and columns of the data:
        once for each group, all by keyword, as TRL's trainers do.
verl    any of data_source, solution_str, ground_truth, extra_info: once for each completion.

Only what a function names is passed, or all there is if it takes ``**kwargs``.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from posttrain.component import nearest
from posttrain.components.rewards import RewardContext
from posttrain.errors import UserError
from posttrain.types import Message, Task, Trajectory

Convention = Literal["plain", "trl", "verl"]

NAMES: dict[Convention, tuple[str, ...]] = {
    "plain": ("completion", "task", "answer", "prompt", "fields", "columns", "trajectory"),
    "trl": ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"),
    "verl": ("data_source", "solution_str", "ground_truth", "extra_info"),
}
ANSWER_COLUMNS = ("answer", "solution", "ground_truth", "target", "label")
"""Columns that hold the reference answer in data sets written for TRL; it is given under whichever a function names."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes from us."""

    convention: Convention
    names: tuple[str, ...]
    """Its parameters, those that are given by position first; the user's own settings are left out."""
    required: tuple[str, ...]
    """Those without a default."""
    num_positional: int
    takes_rest: bool
    """Whether it has ``**kwargs``."""

    def arguments(self, available: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of one call. Raises `LookupError` for a column that is not there."""
        missing = [name for name in self.required if name not in available]
        if missing:
            raise LookupError(f"there is no column '{missing[0]}' in the data; {nearest(missing[0], available)}")
        by_position = self.names[: self.num_positional]
        by_name = {n: v for n, v in available.items() if (n in self.names or self.takes_rest) and n not in by_position}
        return [available[name] for name in by_position if name in available], by_name


def read_signature(function: Callable[..., Any], settings: Mapping[str, Any], spelling: str) -> Signature:
    """Tell how a function wants to be called. Raises `UserError` where no convention fits."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UserError(f"reward function '{spelling}': Python cannot tell its parameters; wrap it in a def") from None
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
    convention = _convention(names)
    if convention != "trl":
        strange = [name for name in required if name not in NAMES[convention]]
        alone = convention == "plain" and len(required) == 1  # any name will do for the completion
        if (strange and not alone) or not (names or takes_rest):
            raise UserError(_unfit(spelling, names, strange, convention))
        names = [name for name in names if name in NAMES[convention] or name in required]
    num_positional = sum(p.kind is p.POSITIONAL_ONLY and p.name in names for p in named)
    return Signature(convention, tuple(names), tuple(required), num_positional, takes_rest)


def _convention(names: Sequence[str]) -> Convention:
    if any(name in NAMES["trl"] for name in names):
        return "trl"
    if any(name in NAMES["verl"] for name in names) and "completion" not in names:
        return "verl"
    return "plain"


def _unfit(spelling: str, names: Sequence[str], strange: Sequence[str], convention: Convention) -> str:
    what = f"nothing is known to give for '{strange[0]}'; {nearest(strange[0], NAMES[convention])}" if strange else ""
    return (
        f"reward function '{spelling}' takes ({', '.join(names)}). {what}\n"
        f"A function may take any of {', '.join(NAMES['plain'])}; or, as for TRL, {', '.join(NAMES['trl'])} and names "
        f"of columns; or, as for verl, {', '.join(NAMES['verl'])}. Settings of its own go into 'arguments'."
    )


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a function written for TRL may ask of ``trainer_state``."""

    global_step: int
    progress: float
    """Share of the stage that is done, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Log:
    """What a function written for TRL tells by ``log_extra`` and ``log_metric``."""

    num_completions: int
    columns: dict[str, list[Any]] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    def extra(self, column: str, values: Sequence[Any]) -> None:
        """Keep a value for each completion."""
        values = list(values)
        if len(values) != self.num_completions:
            raise ValueError(f"log_extra('{column}') got {len(values)} values for {self.num_completions} completions")
        self.columns[column] = values

    def metric(self, name: str, value: Any) -> None:
        """Keep a value for the group."""
        self.metrics[name] = value


def plain_values(trajectory: Trajectory, signature: Signature) -> dict[str, Any]:
    """What can be given to a plain function."""
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
    """What can be given to a function written for verl."""
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
    """What can be given to a function written for TRL: lists with one value for each completion."""
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


def _prompt(task: Task) -> str | list[Message]:
    """The prompt, as a copy that a function may change."""
    if isinstance(task.prompt, str):
        return task.prompt
    return [Message(role=message["role"], content=message["content"]) for message in task.prompt]


def _completion(trajectory: Trajectory) -> str | list[Message]:
    """Text after a text prompt, one message after messages."""
    text = trajectory.completion
    return text if isinstance(trajectory.task.prompt, str) else [Message(role="assistant", content=text)]
