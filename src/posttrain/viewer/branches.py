"""A group as a tree: each rollout below the one that it branched off, and what is known of each turn."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from posttrain.errors.foreign import parse_json
from posttrain.viewer.facts import as_text

Page = dict[str, Any]


def as_tree(rollouts: Sequence[Page], rows: Sequence[Mapping[str, Any]], *, opened: bool) -> list[Page]:
    """The rollouts, each after its parent, with the ``level`` in the tree.

    The segments that a rollout begins with as its parent does are in ``shared`` in place of ``segments``. Where the
    parent is on another page, the level is 1 and nothing is taken out. If `opened`, the prompt is out already.
    """
    known = {row["sample"]: (rollout, row) for rollout, row in zip(rollouts, rows, strict=True)}
    children: dict[int | None, list[int]] = {}
    for sample, (rollout, _) in known.items():
        parent = rollout["parent"]
        earlier = parent in known and parent != sample
        children.setdefault(parent if earlier else None, []).append(sample)
    waiting = [(sample, int(known[sample][0]["parent"] is not None)) for sample in reversed(children.get(None, []))]
    ordered: list[Page] = []
    seen: set[int] = set()
    while waiting:
        sample, level = waiting.pop()
        rollout, row = known[sample]
        seen.add(sample)
        common = 0 if rollout["parent"] not in known else _alike(row, known[rollout["parent"]][1])
        ordered.append({**rollout, "level": level, **_split(rollout, max(common - opened, 0))})
        waiting += [(child, level + 1) for child in reversed(children.get(sample, []))]
    rest = [{**known[s][0], "level": 0, "shared": [], "shared_tokens": 0} for s in known if s not in seen]
    return ordered + rest  # a circle, which no rollout of ours makes, hides nothing


def _split(rollout: Page, common: int) -> Page:
    """The segments in two, with the length of the first part."""
    segments = rollout["segments"]
    shared = segments[:common]
    return {"shared": shared, "segments": segments[common:], "shared_tokens": sum(s["length"] for s in shared)}


def _alike(row: Mapping[str, Any], parent: Mapping[str, Any]) -> int:
    """How many segments two rollouts begin with alike."""
    at = count = 0
    for own, other in zip(row["segments"], parent["segments"], strict=False):
        end = at + own["length"]
        same = (own["actor"], own["length"]) == (other["actor"], other["length"])
        if not same or list(row["token_ids"][at:end]) != list(parent["token_ids"][at:end]):
            break
        at, count = end, count + 1
    return count


def add_turns(rollouts: Sequence[Page], rows: Sequence[Mapping[str, Any]], rollout: Mapping[str, Any]) -> None:
    """Mark the segments of rollouts of several turns: `rollout` is their part of the recipe.

    A rollout is ``in_turns`` if it has more than one. The ``turn`` of a segment becomes the number of its actor's own
    turns before it, since two agents that alternate count together. A turn of a model has ``left``, such as ``3 turns,
    20 tokens``, with what limits of the environment left: ``1 call``; ``valid``, None where the record has not whether
    it was; and ``requests``, what other roles read and wrote before it was over.
    """
    budget = rollout.get("budget")
    free = budget.get("free_turns", 0) if isinstance(budget, dict) else 0
    most = rollout.get("max_turns")
    for page, row in zip(rollouts, rows, strict=True):
        page["in_turns"] = any(segment["turn"] for segment in row["segments"])
        episode = _of_episode(row["info"])
        invalid = list(accumulate(not own for own in episode.valid))
        together, own_turns = _numbered(row["segments"])
        for segment in page["segments"]:
            number, actor = segment["turn"], segment["actor"]
            segment.update(left="", valid=None, requests=[])
            segment["turn"] = own_turns.get((actor, number), together.get(number, number))
            if actor in ("prompt", "environment"):
                continue
            turn = together.get(number, number)
            segment["requests"] = [own for own in episode.requests if own["turn"] == turn]
            if not 0 <= turn < len(invalid):
                continue
            segment["valid"] = episode.valid[turn]
            left = most - (number + 1 - min(free, invalid[turn])) if isinstance(most, int) else None
            parts = [] if left is None or left < 0 else [_counted(left, "turn")]
            parts += [_counted(episode.tokens[turn], "token")] if turn < len(episode.tokens) else []
            limits = episode.limits[turn] if turn < len(episode.limits) else None
            own = limits if isinstance(limits, dict) else {}
            parts += [_counted(count, str(name).removesuffix("s")) for name, count in own.items() if type(count) is int]
            segment["left"] = ", ".join(parts)


def _numbered(segments: Sequence[Mapping[str, Any]]) -> tuple[dict[int, int], dict[tuple[str, int], int]]:
    """The places of turn numbers among those of all models that wrote, and among those of each."""
    written = [(s["actor"], s["turn"]) for s in segments if s["actor"] not in ("prompt", "environment")]
    together = {turn: place for place, turn in enumerate(sorted({turn for _, turn in written}))}
    own = {
        (actor, turn): place
        for actor in {actor for actor, _ in written}
        for place, turn in enumerate(sorted({turn for other, turn in written if other == actor}))
    }
    return together, own


class _Episode(NamedTuple):
    """What the record has of the turns of a rollout; empty where it has nothing."""

    valid: Sequence[bool] = ()
    tokens: Sequence[int] = ()
    limits: Sequence[Any] = ()
    requests: Sequence[Page] = ()


def _of_episode(info: str | None) -> _Episode:
    try:
        found = parse_json(info or "{}", constants=True)
    except ValueError:
        return _Episode()
    own = found if isinstance(found, dict) else {}
    valid, left, limits, requests = (own.get(n) for n in ("valid_turns", "tokens_left", "limits_left", "requests"))
    return _Episode(
        [bool(value) for value in valid] if isinstance(valid, list) else [],
        left if isinstance(left, list) and all(isinstance(value, int) for value in left) else [],
        limits if isinstance(limits, list) else [],
        [_request(request) for request in requests if isinstance(request, dict)] if isinstance(requests, list) else [],
    )


def _request(request: Mapping[str, Any]) -> Page:
    """A request as texts: the role, each message that it read, and what it wrote."""
    read = request.get("read")
    messages = [one for one in read if isinstance(one, dict)] if isinstance(read, list) else []
    return {
        "turn": request.get("turn"),
        "role": str(request.get("role", "")),
        "read": [{"role": str(one.get("role", "")), "text": as_text(one.get("content"))} for one in messages],
        "wrote": as_text(request.get("wrote")),
    }


def _counted(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'' if count == 1 else 's'}"
