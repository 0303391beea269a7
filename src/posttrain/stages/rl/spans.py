"""Finds the token ranges of tagged parts in rollouts, for the components that read them."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from posttrain.components.rollouts import Spans
from posttrain.datasets.spans import Range, tagged_ranges
from posttrain.stages import Models
from posttrain.types import Group, Trajectory


def with_spans(groups: Sequence[Group], tags: Collection[str], models: Models) -> list[Group]:
    """The groups with the fact `Spans` on each rollout; unchanged if no tag is needed."""
    if not tags:
        return list(groups)
    return [replace(group, trajectories=tuple(_found(t, tags, models) for t in group)) for group in groups]


def _found(trajectory: Trajectory, tags: Collection[str], models: Models) -> Trajectory:
    """Ranges count the trained tokens of the rollout, over all its turns."""
    ranges: dict[str, list[Range]] = {tag: [] for tag in sorted(tags)}
    before, text = 0, ""
    for segment in trajectory.segments:
        if segment.trained and segment.vectors is None:
            tokenizer = models[segment.learner].tokenizer
            pieces = [tokenizer.token_bytes(int(token)) for token in segment.token_ids]
            for tag in ranges:
                opened = text.rstrip().endswith(f"<{tag}>")
                found = tagged_ranges(pieces, tag, opened=opened)
                ranges[tag] += [(before + start, before + end) for start, end in found]
        before += len(segment) if segment.trained else 0
        text = segment.text
    fact = Spans(ranges={tag: tuple(found) for tag, found in ranges.items()})
    return replace(trajectory, facts=(*trajectory.facts, fact))
