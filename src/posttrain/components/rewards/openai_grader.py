"""Graders in OpenAI's JSON format: ``string_check``, ``text_similarity``, ``python`` and ``multi``.

A ``python`` grader is the source of a function ``grade(sample, item)``, which is run in the sandbox; a ``multi`` grader
computes its value from those of others, ``calculate_output: 0.8 * right + 0.2 * short``.

Templates are ``{{ item.COLUMN }}`` and ``{{ sample.output_text }}``, with dots into nested values. A column that a row
does not have is an error; a part of ``sample.output_json`` that a completion lacks is an incorrect answer.

Differs: ``cosine``, ``bleu``, ``gleu`` and ``meteor`` need an embedding, a tokenizer or a thesaurus that the format
does not name, and are refused, as are graders that prompt a model (use `judge`). A ``fuzzy_match`` is the ratio of
rapidfuzz; ROUGE is the F-measure. The sandbox of a ``python`` grader has Python's own library alone, whatever its
``image_tag``; a function in a file of yours (``reward=./grader.py:grade``) has all that is installed here.
"""

import asyncio
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.values import as_text
from posttrain.errors.foreign import parse_json
from posttrain.grading.conventions import openai_values
from posttrain.grading.extraction import shown
from posttrain.grading.formulas import check_formula, evaluate_formula
from posttrain.grading.programs import broken, how_it_ended
from posttrain.grading.similarity import cut, fuzzy, rouge, rouge_l
from posttrain.sandbox import Limits, Tier, open_pool, python_job
from posttrain.types import Group, Score, Status, Trajectory

Operation = Literal["eq", "ne", "like", "ilike"]
Metric = Literal["fuzzy_match", "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l"]
WORKER: Final = """
import json, os, sys
job = json.loads(sys.stdin.buffer.read())
channel = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.stdin = open(os.devnull)
space = {"__name__": "grader"}
exec(compile(job["source"], "grader.py", "exec"), space)
channel.write(json.dumps(float(space["grade"](job["sample"], job["item"]))))
channel.flush()
"""
"""Runs in the sandbox, around the grader."""
_PLACE = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")


@frozen
class OpenAIGrader(Reward):
    """Scores by a grader of OpenAI."""

    type: Literal["string_check", "text_similarity", "python", "multi"] = "string_check"
    """Type of the grader."""
    input: str = "{{ sample.output_text }}"
    """What is compared."""
    reference: str = "{{ item.reference_answer }}"
    """What it is compared with."""
    operation: Operation = "eq"
    """For ``string_check``: equal, unequal, contains the reference, or contains it in any case."""
    evaluation_metric: Metric = "fuzzy_match"
    """For ``text_similarity``: the measure, from 0 to 1."""
    pass_threshold: float = Field(default=1.0, ge=0.0, le=1.0)
    """Smallest value of a correct answer, but of a ``string_check``."""
    source: str = ""
    """For ``python``: source of the function ``grade``."""
    image_tag: str = ""
    """For ``python``: the image that OpenAI runs it in. Here it is the sandbox, whatever is given."""
    graders: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """For ``multi``: the graders by name, as JSON of this format."""
    calculate_output: str = ""
    """For ``multi``: the value, a formula of their names with + - * / ^, min, max, abs, floor, ceil, exp, sqrt, log."""
    limits: Limits = Limits(cpu_s=5.0)
    """For ``python``: limits of one call."""
    weakest: Tier = "cgroup"
    """For ``python``: the weakest sandbox in which it may run: see ``posttrain doctor``."""
    name: str = ""
    """The name in the grader's JSON, not used."""

    @field_validator("input", "reference")
    @classmethod
    def check_template(cls, template: str) -> str:
        """Refuse a template with a namespace other than item and sample. Raises a validation error."""
        for place in _PLACE.findall(template):
            if place.split(".")[0] not in ("item", "sample"):
                raise PydanticCustomError(
                    "template", "the template names '{place}'; known are item.* and sample.*", {"place": place}
                )
        return template

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        """Refuse what its type lacks. Raises a validation error."""
        if (self.type == "python") != bool(self.source):
            raise PydanticCustomError("source", "a source is for a grader of the type python, which needs one")
        if self.image_tag and self.type != "python":
            raise PydanticCustomError("image_tag", "an image_tag is for a grader of the type python")
        if (self.type == "multi") != bool(self.graders and self.calculate_output):
            raise PydanticCustomError(
                "graders", "graders and calculate_output belong to the type multi, which needs both"
            )
        if self.type == "multi":
            try:
                check_formula(self.calculate_output, tuple(self._parts))
            except ValueError as error:
                raise PydanticCustomError("formula", "calculate_output: {why}", {"why": str(error)}) from None
        return self

    def prepare(self) -> None:
        """Open the sandbox, if anything runs in it. Raises `UserError` without one that is strong enough."""
        if self.type == "python":
            open_pool(self.weakest)
        for part in self._parts.values():
            part.prepare()

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Fill in the templates and compare, call the function, or compute from the other graders."""
        if self.type == "multi":
            names = tuple(self._parts)
            found = [await part.score(group, context) for part in self._parts.values()]
            return [self._combined(dict(zip(names, scores, strict=True))) for scores in zip(*found, strict=True)]
        if self.type == "python":
            return list(await asyncio.gather(*map(self._called, group)))
        return [self._score(trajectory) for trajectory in group]

    @cached_property
    def _parts(self) -> "Mapping[str, OpenAIGrader]":
        """The graders of a ``multi``."""
        own: dict[str, Any] = {"limits": self.limits, "weakest": self.weakest}
        return {name: OpenAIGrader(**{**own, **grader}) for name, grader in self.graders.items()}

    def _combined(self, parts: Mapping[str, Score]) -> Score:
        """The value of the formula; an error where a part is one."""
        broken = next((name for name, score in parts.items() if score.status == "error"), None)
        if broken is not None:
            return failure(f"{broken}: {parts[broken].explanation}", parts=parts)
        values = {name: score.value for name, score in parts.items()}
        try:
            value = evaluate_formula(self.calculate_output, values)
        except (ArithmeticError, ValueError) as error:
            return failure(f"calculate_output has no value for {values}: {error}", parts=parts)
        if not math.isfinite(value):
            return failure(f"calculate_output is {value} for {values}", parts=parts)
        answer = next(iter(parts.values())).answer
        status: Status = "ok" if value >= self.pass_threshold else "wrong"
        return Score(value=value, status=status, answer=answer, explanation=f"{value:.3g}", parts=parts)

    async def _called(self, trajectory: Trajectory) -> Score:
        """The number that the function returns; an error where it returns none."""
        message = json.dumps({"source": self.source, **openai_values(trajectory)}, default=str)
        job = python_job(WORKER.encode(), stdin=message.encode("ascii"), warm=True)
        result = await open_pool(self.weakest).result(job, self.limits)
        if error := broken(result):
            return error
        try:
            value = float(parse_json(result.stdout.decode("ascii")))
        except (ValueError, TypeError):
            return failure(f"grade gave no number: {how_it_ended(result)}")
        if not math.isfinite(value):
            return failure(f"grade returned {value}")
        status: Status = "ok" if value >= self.pass_threshold else "wrong"
        text = trajectory.completion
        return Score(value=value, status=status, answer=text, explanation=f"grade returned {value:.3g}")

    def _score(self, trajectory: Trajectory) -> Score:
        values = openai_values(trajectory)
        try:
            text, reference = _filled(self.input, values), _filled(self.reference, values)
        except _NoOutput as missing:
            return Score(value=0.0, status="wrong", explanation=f"the completion has no {missing}")
        except LookupError as missing:
            columns = ", ".join(values["item"])
            return failure(f"task '{trajectory.task.key}' has no {missing.args[0]}; its row has {columns}")
        what, long = "", ""
        if self.type == "string_check":
            value, what = float(_check(self.operation, text, reference)), self.operation
        else:
            value, what = _similarity(self.evaluation_metric, text, reference), self.evaluation_metric
            long = cut(text, reference, words=what != "fuzzy_match")
        right = value >= (1.0 if self.type == "string_check" else self.pass_threshold)
        explanation = f"{what} of {shown(text)} and {shown(reference)} is {value:.3g}{long}"
        return Score(value=value, status="ok" if right else "wrong", answer=text, explanation=explanation)


class _NoOutput(LookupError):
    """A part that the completion does not have."""


def _filled(template: str, values: Mapping[str, Any]) -> str:
    return _PLACE.sub(lambda place: as_text(_found(place[1], values)), template)


def _found(path: str, values: Mapping[str, Any]) -> Any:
    """The value at a dotted path. Raises `LookupError`, for a part of the completion `_NoOutput`."""
    value: Any = values
    for name in path.split("."):
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, Mapping) and value.get(name) is not None:
            value = value[name]
        else:
            raise _NoOutput(path) if path.startswith("sample.") else LookupError(path)
    return value


def _check(operation: Operation, text: str, reference: str) -> bool:
    if operation in ("eq", "ne"):
        return (text == reference) == (operation == "eq")
    return reference in text if operation == "like" else reference.lower() in text.lower()


def _similarity(metric: Metric, text: str, reference: str) -> float:
    if metric == "fuzzy_match":
        return fuzzy(text, reference)
    last = metric.removeprefix("rouge_")
    return rouge_l(text, reference) if last == "l" else rouge(text, reference, int(last))
