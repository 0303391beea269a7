"""Example completions for the report: held-out answers before and after, and the last step's rollouts."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.datasets.images import data_uri
from posttrain.errors import UserError
from posttrain.errors.foreign import file_in, parse_json, read_bytes
from posttrain.runs.readings import number
from posttrain.runs.store import RunStore
from posttrain.runs.summary import correct_at
from posttrain.runs.token_text import TokenTexts

Entry = Mapping[str, Any]

SHOWN = {"gained": 6, "lost": 4, "wrong": 4, "right": 3, "unscored": 3}
"""Number of held-out tasks that are shown, by outcome."""

_MOST_GROUPS = 2
_MOST_ROWS = 6
_MOST_TOKENS = 500
_MOST_BYTES = 200_000
"""Largest size of a picture that is embedded in a page."""
_SCORED = (
    "task_key",
    "prompt",
    "images",
    "completion",
    "answer",
    "reward",
    "score_status",
    "score_answer",
    "score_explanation",
)
_ANSWER = (*_SCORED, "stop_reason")
_ROLLOUT = (*_ANSWER, "group_index", "dropped_reason", "token_ids", "trained")
_LOGPS = ("trained_logp", "sampled_logp")
_SIGNALS = ("advantage", "entropy", *_LOGPS)


def compared_answers(store: RunStore) -> dict[str, Any]:
    """Greedy answers of the last evaluation next to those of the first, by the outcome of each task.

    ``groups`` holds ``name``, ``title``, ``count`` and the ``pairs`` to show; ``before`` is whether there is a
    first evaluation to compare with.
    """
    evaluations = store.evaluations()
    if not evaluations:
        return {"groups": [], "before": False}
    first, last = evaluations[0], evaluations[-1]
    threshold = correct_at(store.recipe_tree())
    before = {} if first is last else _greedy(store, first, threshold)
    kinds: dict[str, list[dict[str, Any]]] = {name: [] for name in SHOWN}
    for key, answer in _greedy(store, last, threshold).items():
        earlier = before.get(key)
        kinds[outcome(earlier or answer, answer)].append({"before": earlier, "after": answer})
    show_pictures(store, [pair["after"] for pairs in kinds.values() for pair in pairs[: max(SHOWN.values())]])
    titles = {"gained": "Learned", "lost": "Lost", "wrong": "Still wrong", "right": "Still right"}
    titles |= {"unscored": "Not scored"}
    if not before:
        titles |= {"wrong": "Wrong", "right": "Right"}
    groups = [
        {"name": name, "title": titles[name], "count": len(pairs), "pairs": pairs[: SHOWN[name]]}
        for name, pairs in kinds.items()
        if pairs
    ]
    return {"groups": groups, "before": bool(before)}


def last_rollouts(store: RunStore) -> dict[str, Any] | None:
    """Groups of the last recorded step, token by token; groups with different rewards come first."""
    steps = store.rollout_steps()
    chosen = _telling_groups(store, steps[-1]) if steps else []
    if not chosen:
        return None
    condition = f"group_index IN ({', '.join(map(str, chosen))})"
    rows = store.rollouts(steps[-1], (*_ROLLOUT, *_SIGNALS), condition)
    texts = TokenTexts.find(store.folder)
    largest = max((abs(a) for row in rows for a in row["advantage"] or () if a is not None), default=0.0)
    threshold = correct_at(store.recipe_tree())
    groups = []
    for group in chosen:
        own = [scored(row, threshold) for row in rows if row["group_index"] == group][:_MOST_ROWS]
        shown = [{**row, **_coloured(row, texts, largest)} if texts else {**row, "pieces": []} for row in own]
        show_pictures(store, own[:1])
        task = {name: own[0][name] for name in ("prompt", "answer", "pictures")}
        groups.append({**task, "rows": shown})
    return {"step": steps[-1], "groups": groups, "colours": _colours(rows) if texts else []}


def show_pictures(store: RunStore, rows: Sequence[dict[str, Any]]) -> None:
    """Add ``pictures`` to each row: those of its task that can be shown, as data links."""
    for row in rows:
        links = [_picture(store, str(name)) for name in _names(row["images"])]
        row["pictures"] = [link for link in links if link is not None]


def _names(images: str | None) -> list[Any]:
    """The names in a cell of the record; none where it holds something else."""
    try:
        names = parse_json(images or "[]")
    except ValueError:
        return []
    return names if isinstance(names, list) else []


def _picture(store: RunStore, name: str) -> str | None:
    """A picture of the record; None where it is not in the run's own folder, too large, or of no form for a page."""
    try:
        return data_uri(read_bytes(file_in(store.folder, name), _MOST_BYTES))
    except UserError:
        return None


def _greedy(store: RunStore, evaluation: Entry, threshold: float) -> dict[str, dict[str, Any]]:
    """Greedy answers of an evaluation by task key, each marked as correct or not."""
    if evaluation["step"] not in store.evaluation_steps():
        return {}
    rows = store.evaluation_rows(evaluation["step"], evaluation["name"], _ANSWER, "sample = 0")
    return {row["task_key"]: scored(row, threshold) for row in rows}


def outcome(before: Entry, after: Entry) -> str:
    """The outcome of a task: ``unscored`` where an answer has no score."""
    if not (before["has_score"] and after["has_score"]):
        return "unscored"
    if before["right"]:
        return "right" if after["right"] else "lost"
    return "gained" if after["right"] else "wrong"


def scored(row: Entry, threshold: float) -> dict[str, Any]:
    """An answer with ``has_score``, ``right``, and its ``badge``: none if nothing was to score it."""
    has_score = row["reward"] is not None and row["score_status"] not in (None, "error")
    right = has_score and row["reward"] >= threshold
    badge = "" if row["score_status"] is None else "right" if right else "wrong" if has_score else "not scored"
    return {**row, "has_score": has_score, "right": right, "badge": badge}


def _telling_groups(store: RunStore, step: int) -> list[int]:
    """Indices of the groups to show, first those that were learned from and have different rewards."""
    rewards: dict[int, set[float | None]] = {}
    dropped: set[int] = set()
    for row in store.rollouts(step, ["group_index", "reward", "dropped_reason"]):
        rewards.setdefault(row["group_index"], set()).add(row["reward"])
        if row["dropped_reason"] is not None:
            dropped.add(row["group_index"])
    return sorted(rewards, key=lambda group: (group in dropped, -len(rewards[group]), group))[:_MOST_GROUPS]


def _colours(rows: Sequence[Entry]) -> list[tuple[str, str]]:
    """Name and label of each colouring that has values."""
    labels = {"advantage": "advantage", "surprise": "surprise (minus log-probability)", "entropy": "entropy"}
    sources = {"advantage": ("advantage",), "surprise": _LOGPS, "entropy": ("entropy",)}
    return [
        (name, label)
        for name, label in labels.items()
        if any(row[column] is not None for row in rows for column in sources[name])
    ]


def _coloured(row: Entry, texts: TokenTexts, largest: float) -> dict[str, Any]:
    """The ``pieces`` of what came after the prompt, each with the strength of its colours, and how many are
    ``left_out`` for length.
    """
    start = next((i for i, trained in enumerate(row["trained"]) if trained), 0)
    shown = row["token_ids"][start : start + _MOST_TOKENS]
    pieces = []
    for piece in texts.pieces(shown):
        at = start + piece.start
        advantage, entropy, trained_logp, sampled_logp = (
            None if row[name] is None else row[name][at] for name in _SIGNALS
        )
        logp = sampled_logp if trained_logp is None else trained_logp
        values = {"advantage": advantage, "log-probability": logp, "entropy": entropy}
        pieces.append(
            {
                "text": piece.text,
                "trained": row["trained"][at],
                "gain": advantage is not None and advantage > 0,
                "advantage": _strength(advantage, largest),
                "surprise": _strength(logp, 4.0),
                "entropy": _strength(entropy, 2.0),
                "title": ", ".join(f"{name} {number(value)}" for name, value in values.items() if value is not None),
            }
        )
    return {"pieces": pieces, "left_out": len(row["token_ids"]) - start - len(shown)}


def _strength(value: float | None, full: float) -> float:
    """Strength of the colour of a value, in [0, 1]."""
    return 0.0 if value is None or not full or math.isnan(value) else round(min(1.0, abs(value) / full), 2)
