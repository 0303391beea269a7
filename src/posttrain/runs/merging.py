"""Merges outside a run: calibration texts, and the accuracy and length of answers by the coefficient of a merge."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from posttrain.components.merges import Merge
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.recipes.files import to_yaml
from posttrain.runs.measuring import answers_with, context_for
from posttrain.runs.sweeps import Results

if TYPE_CHECKING:
    from posttrain.policies.calibration import Text
    from posttrain.policies.language_model import LanguageModelPolicy
    from posttrain.policies.merging import Sources

MOST_TEXTS: Final = 100
"""Texts of a calibration file that are used, the first ones (100 items in arXiv:2503.20641)."""
PASS_TOKENS: Final = 2048
"""Tokens in one forward pass over calibration texts."""
MOST_POINTS: Final = 1000
"""Points of a sweep."""


def points(text: str) -> list[float]:
    """The coefficients of a sweep, ``from:to:step`` with both ends. Raises `UserError` for another text."""
    try:
        first, last, step = map(float, text.split(":"))
    except ValueError:
        raise UserError(f"--sweep is '{text}'; write from:to:step, such as 0:1:0.05") from None
    count = (last - first) / step if step else -1.0
    if not 0.0 <= count < MOST_POINTS:
        raise UserError(
            f"--sweep is '{text}', which has no points or more than {MOST_POINTS}; the step leads from the first to "
            "the last number"
        )
    found = [round(first + i * step, 12) for i in range(int(count + 1e-9) + 1)]
    return found if abs(found[-1] - last) < 1e-9 else [*found, last]


def calibration_texts(policy: "LanguageModelPolicy", source: Tasks) -> "list[Text]":
    """The demonstrations of a source of tasks, the first 100, packed. Raises `UserError` where there are none."""
    import numpy as np

    from posttrain.policies.calibration import Text
    from posttrain.stages.sft import demonstration, example_from
    from posttrain.training.packing import pack, plan_micro_batches

    pairs = [(task, text) for task in source.load() for text in task.demonstrations][:MOST_TEXTS]
    if not pairs:
        raise UserError("the calibration file has no completion; give columns named prompt and completion")
    examples = [example_from(demonstration(policy, task, text)) for task, text in pairs]
    device = next(policy.parameters()).device
    packs = [
        pack([examples[i] for i in part], np.zeros(len(part), np.float32), device, share=False)
        for part in plan_micro_batches(examples, PASS_TOKENS)
    ]
    return [Text(packed=batch.packed, positions_T=batch.positions_T) for batch in packs]


Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Summary(TypedDict):
    """Of an evaluation, and more; see `posttrain.evaluation.greedy.Evaluated`."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    accuracy: Share | None
    accuracy_interval: tuple[Share, Share] | list[Share] | None
    mean_tokens: Annotated[float, Field(ge=0.0)]
    truncated: Share


@dataclass(frozen=True, kw_only=True)
class Point:
    """The result of one coefficient."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    coefficient: float
    summary: Summary
    reflective: Share
    """Share of greedy answers that check themselves."""


def points_in(path: Path | None, settings: Mapping[str, Any]) -> Results[Point]:
    """The points of a sweep with these settings in a file. Raises `UserError` where it holds others."""
    return Results(Point, lambda point: f"{point.coefficient:g}", path, settings)


def sweep(
    sources: "Sources",
    method: Merge,
    coefficients: Sequence[float],
    changes: Sequence[str],
    calibration: "Sequence[Sequence[Text]]" = (),
    *,
    kept: Results[Point] | None = None,
    on_point: Callable[[Point], None] = lambda point: None,
) -> list[Point]:
    """Evaluate the merge at each coefficient on the held-out tasks of a recipe with changes; what is `kept` is taken.

    The recipe is that of the first model, if it is of a run, with its evaluation: the value model of a search in it
    stays what it is.
    """
    from posttrain.evaluation.reflection import reflective
    from posttrain.policies.merging import blend

    context = context_for(sources.first, changes, None, None)
    others = {role: context.load(role, model, {}) for role, model in context.recipe.models.items() if role != "policy"}
    found = []
    if context.problems.held_out and not context.problems.answered:
        raise UserError("the held-out tasks have no answers, so a sweep has no accuracy; name others: tasks=FILE")
    kept = kept or points_in(None, {})
    digest = sha256(to_yaml(context.recipe).encode()).hexdigest()
    kept.match({"recipe": digest, "tasks": context.problems.digests})
    for coefficient in coefficients:
        known = kept.get(f"{coefficient:g}")
        if known is None:
            blend(sources, method.at(coefficient), calibration)
            sources.policy.version += 1
            summary, answers = answers_with(context, {"policy": sources.policy, **others})
            greedy = [answer.completion for answer in answers if not answer.sample]
            known = Point(coefficient=coefficient, summary=cast(Summary, summary), reflective=reflective(greedy))
            kept.put(known)
        found.append(known)
        on_point(found[-1])
    return found


def stored_type(policy: "LanguageModelPolicy") -> Literal["bfloat16", "float32"]:
    """The type that a merge is stored in: that of the first model's weights."""
    import torch

    stored = {dtype for dtype in policy.origin.stored.values() if dtype.is_floating_point}
    return "bfloat16" if stored == {torch.bfloat16} else "float32"


def write(sources: "Sources", method: Merge, calibration: "Sequence[Sequence[Text]]", folder: Path) -> dict[str, float]:
    """Merge, and write the new model; returns its distance from each source."""
    import torch

    from posttrain.policies.merging import blend

    sources.policy.to(getattr(torch, stored_type(sources.policy)))
    merged = blend(sources, method, calibration)
    merged.policy.save(folder)
    return dict(merged.distances)
