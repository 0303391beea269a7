"""Finds the token ranges of tagged parts in rollouts, for the components that read them, and the tokens at which the
rewards of parts of completions are given.
"""

from bisect import bisect_left
from codecs import getincrementaldecoder
from collections.abc import Collection, Sequence
from dataclasses import replace

from posttrain.components.rewards import SpanRewards
from posttrain.components.rollouts import Spans
from posttrain.datasets.spans import Range, closing_tokens, quoted_ranges, tagged_ranges
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
    closings: dict[str, list[int]] = {tag: [] for tag in ranges if not tag.startswith('"')}
    before, text = 0, ""
    for segment in trajectory.segments:
        if segment.trained and segment.vectors is None:
            tokenizer = models[segment.learner].tokenizer
            pieces = [tokenizer.token_bytes(int(token)) for token in segment.token_ids]
            for tag in ranges.keys() - closings.keys():
                ranges[tag] += [(before + start, before + end) for start, end in quoted_ranges(pieces, tag.strip('"'))]
            for tag in closings:
                opened = text.rstrip().endswith(f"<{tag}>")
                found = tagged_ranges(pieces, tag, opened=opened)
                ranges[tag] += [(before + start, before + end) for start, end in found]
                closings[tag] += [before + place for place in closing_tokens(pieces, tag)]
        before += len(segment) if segment.trained else 0
        text = segment.text
    fact = Spans(
        ranges={tag: tuple(found) for tag, found in ranges.items()},
        closings={tag: tuple(found) for tag, found in closings.items()},
    )
    return replace(trajectory, facts=(*trajectory.facts, fact))


def with_span_rewards(groups: Sequence[Group], models: Models) -> list[Group]:
    """The groups with the fact `SpanRewards` on each rollout whose score has spans.

    The reward of a span is given at the last sampled token that has characters of it. Of the spans of one part, a later
    one replaces an earlier one at the same token, and parts add. What was replaced is taken from the value of the
    score, so that the rewards of tokens sum to it.
    """
    return [replace(group, trajectories=tuple(_placed(t, models) for t in group)) for group in groups]


def _placed(trajectory: Trajectory, models: Models) -> Trajectory:
    score = trajectory.score
    if score is None or not score.spans or not trajectory.num_trained:
        return trajectory
    places = _character_ends(trajectory, models)
    by_part: dict[str, dict[int, float]] = {}
    for _, end, reward, part in score.spans:
        by_part.setdefault(part, {})[_token_of(end, places)] = reward
    total: dict[int, float] = {}
    for placed in by_part.values():
        for token, reward in placed.items():
            total[token] = total.get(token, 0.0) + reward
    lost = sum(reward for _, _, reward, _ in score.spans) - sum(total.values())
    fact = SpanRewards(span_rewards=tuple(sorted(total.items())))
    kept = tuple(other for other in trajectory.facts if not isinstance(other, SpanRewards))
    return replace(trajectory, facts=(*kept, fact), score=replace(score, value=score.value - lost))


def _character_ends(trajectory: Trajectory, models: Models) -> list[tuple[int, int]]:
    """For each trained token the characters of the completion before it, and up to its end."""
    places: list[tuple[int, int]] = []
    before = 0
    for segment in trajectory.segments:
        if segment.actor == "prompt" and not segment.trained:
            continue
        if segment.trained and segment.vectors is None:
            tokenizer = models[segment.learner].tokenizer
            decoder = getincrementaldecoder("utf-8")("replace")
            seen = 0
            for token in segment.token_ids:
                start = min(seen, len(segment.text))
                seen += len(decoder.decode(tokenizer.token_bytes(int(token))))
                places.append((before + start, before + min(seen, len(segment.text))))
        elif segment.trained:
            places += [(before, before)] * len(segment)
        before += len(segment.text)
    return places


def _token_of(end: int, places: Sequence[tuple[int, int]]) -> int:
    """The trained token with the last character before `end`; the last one before it where none has it."""
    found = bisect_left([last for _, last in places], end)
    if found == len(places):
        return len(places) - 1
    first, _ = places[found]
    return found if first < end else max(found - 1, 0)
