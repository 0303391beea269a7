"""Scores bounding boxes against reference boxes, by overlap, confidence or recall.

Source: Liu et al. 2025 (Visual-RFT), arXiv:2503.01785, section 3.2, and its release at 9486633. Boxes are matched one
to one, the most confident first, each with the free reference box that it overlaps most with, where IoU > 0.5. Then

    iou         sum of the matched IoUs / max(reference boxes, stated boxes)
    confidence  mean over stated boxes of c for a matched one, 1 - c for another
    giou        sum of 1 + GIoU / max(reference boxes, stated boxes), matched by GIoU, whatever it is: in [0, 2]
    recall      matched boxes / reference boxes

The reward of the paper is the sum of the first two. They are separate parts, so that each has its own weight, metric
and record. `confidence` alone is maximized by one box of confidence 0 anywhere, and `recall` by boxes everywhere, so
neither is a reward by itself. `giou` is the reward of the release for grounding.

Differs: the release clips the mean of confidences to [0, 1], here each confidence is clipped. The release scores the
whole text where the answer has line breaks, and gives the full reward to what a symbolic check of formulas accepts;
neither is done here. An answer that is cut at the token limit counts as no answer.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.boxes import Corners, Matched, corners_of, giou, iou, match, read_boxes
from posttrain.grading.extraction import Extractor, find_answer, shown
from posttrain.types import Group, Score, Trajectory


@frozen
class Boxes(Reward):
    """Scores boxes. The task's field `field` has the reference boxes, ``[[x1, y1, x2, y2], ...]``."""

    measure: Literal["iou", "giou", "confidence", "recall"] = "iou"
    """Measure that is the reward; see above."""
    threshold: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Boxes match where their IoU is above this."""
    field: str = "boxes"
    """Name of the task's field with the reference boxes."""
    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = ("answer_tag", "whole")
    """Where to find the list of boxes; the first extractor that finds something decides."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare the boxes of each answer with those of its task."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        given = task.fields.get(self.field)
        reference = [corners_of(box) for box in given] if isinstance(given, Sequence) else []
        if not reference or None in reference:
            return failure(
                f"task '{task.key}' has no boxes to compare with: its field '{self.field}' is {shown(repr(given))}, "
                "and [[x1, y1, x2, y2], ...] is needed"
            )
        found = find_answer(trajectory, self.extract)
        if found is None:
            return Score(value=0.0, status="wrong", explanation=f"no answer found by {', '.join(self.extract)}")
        stated = read_boxes(found.text)
        if not stated:
            what = "is no list of boxes with a position and a confidence each" if stated is None else "has no boxes"
            return Score(value=0.0, status="wrong", answer=found.text, explanation=f"{shown(found.text)} {what}")
        boxes = [box for box in reference if box is not None]
        matched = match(stated, boxes, iou, self.threshold)
        hits = sum(m.overlap is not None for m in matched)
        right = hits == len(boxes) == len(stated)
        explanation = f"{hits} of {len(boxes)} boxes found with {len(stated)}; {self.measure} of them"
        value = self._value(matched, boxes)
        return Score(value=value, status="ok" if right else "wrong", answer=found.text, explanation=explanation)

    def _value(self, matched: Sequence[Matched], reference: Sequence[Corners]) -> float:
        """The measure of the stated boxes, at least one."""
        larger = max(len(reference), len(matched))
        if self.measure == "giou":
            anyway = match([m.box for m in matched], reference, giou, -2.0)
            return sum(1.0 + m.overlap for m in anyway if m.overlap is not None) / larger
        if self.measure == "confidence":
            right = (m.box.confidence if m.overlap is not None else 1.0 - m.box.confidence for m in matched)
            return sum(right) / len(matched)
        overlaps = [m.overlap for m in matched if m.overlap is not None]
        return len(overlaps) / len(reference) if self.measure == "recall" else sum(overlaps) / larger
