"""Reads boxes from an answer and matches them with reference boxes. Takes any text, in time linear in its length."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

Corners = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""

MOST_BOXES = 1000
"""Largest number of boxes of a valid answer."""
FARTHEST = 1e6
"""Largest absolute value of a valid coordinate, in pixels; areas stay finite."""
POSITION_KEYS = ("Position", "position", "bbox_2d", "bbox", "box")
CONFIDENCE_KEYS = ("Confidence", "confidence", "score")


class Box(NamedTuple):
    """A box of an answer, with its stated confidence."""

    corners: Corners
    confidence: float


class Matched(NamedTuple):
    """A stated box with the overlap with its reference box; None for a box without a match."""

    box: Box
    overlap: float | None


def read_boxes(text: str) -> list[Box] | None:
    """The boxes of a JSON list ``[{"Position": [x1, y1, x2, y2], "Confidence": c}, ...]``; None for anything else.

    Single quotes count as double ones, and a list that is not closed ends after its last complete box. Of equal
    positions the first counts. Confidences are clipped to [0, 1].
    """
    start = text.find("[")
    if start < 0 or text.count("{") > MOST_BOXES:  # before anything is built of them
        return None
    written = text[start : text.rfind("]") + 1].replace("'", '"')
    found = _parse(written)
    if found is None:
        written = text[start:].replace("'", '"')
        end = written.rfind("}")
        found = None if end < 0 else _parse(written[: end + 1] + "]")
    if not isinstance(found, list):
        return None
    boxes: dict[Corners, Box] = {}
    for item in found:
        box = _box(item)
        if box is None:
            return None
        boxes.setdefault(box.corners, box)
    return list(boxes.values())


def corners_of(value: Any) -> Corners | None:
    """Four finite numbers as corners; None for anything else."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 4:
        return None
    if not all(isinstance(x, int | float) and not isinstance(x, bool) and abs(x) <= FARTHEST for x in value):
        return None
    left, top, right, bottom = map(float, value)
    return left, top, right, bottom


def iou(a: Corners, b: Corners) -> float:
    """Intersection over union, in [0, 1]; 0 where both are empty."""
    shared, joined, _ = _areas(a, b)
    return shared / joined if joined > 0 else 0.0


def giou(a: Corners, b: Corners) -> float:
    """Generalised IoU, in [-1, 1]: IoU minus the share of the enclosing box outside both boxes.

    Rezatofighi et al. 2019, arXiv:1902.09630, algorithm 1.
    """
    _, joined, around = _areas(a, b)
    return iou(a, b) - ((around - joined) / around if around > 0 else 1.0)


def match(
    stated: Sequence[Box], reference: Sequence[Corners], overlap: Callable[[Corners, Corners], float], above: float
) -> list[Matched]:
    """Matches boxes one to one, the most confident first, each with the free reference box of the largest overlap.

    A match needs an overlap of more than `above`. Ties of confidence and of overlap go to the first box.
    """
    free = list(reference)
    matched = []
    for box in sorted(stated, key=lambda box: -box.confidence):
        best = max(range(len(free)), key=lambda i: overlap(box.corners, free[i]), default=None)
        value = -math.inf if best is None else overlap(box.corners, free[best])
        if best is not None and value > above:
            del free[best]
            matched.append(Matched(box, value))
        else:
            matched.append(Matched(box, None))
    return matched


def _areas(a: Corners, b: Corners) -> tuple[float, float, float]:
    """Areas of the intersection, of the union, and of the box that encloses both."""
    shared = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    joined = _area(a) + _area(b) - shared
    around = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return shared, joined, around


def _area(box: Corners) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def _parse(text: str) -> Any:
    """JSON, or None. Whole numbers are read as floats, which takes linear time however many digits they have."""
    try:
        return json.loads(text, parse_int=float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _box(item: Any) -> Box | None:
    if not isinstance(item, Mapping):
        return None
    corners = corners_of(next((item[key] for key in POSITION_KEYS if key in item), None))
    confidence = next((item[key] for key in CONFIDENCE_KEYS if key in item), None)
    if corners is None or not isinstance(confidence, float) or not math.isfinite(confidence):
        return None
    return Box(corners, min(max(confidence, 0.0), 1.0))
