"""Example completions for the report: held-out answers before and after, and the last step's rollouts."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.datasets.images import data_uri
from posttrain.runs.readings import number
from posttrain.runs.store import RunStore
from posttrain.runs.summary import correct_at
from posttrain.runs.token_text import TokenTexts

Entry = Mapping[str, Any]

SHOWN = {"gained": 6, "lost": 4, "wrong": 4, "right": 3}
"""Held-out tasks that are shown, by what became of them."""

_MOST_GROUPS = 2
_MOST_ROWS = 6
_MOST_TOKENS = 500
_MOST_BYTES = 200_000
"""A picture of more is not put into a page."""
_JUDGED = (
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
_ANSWER = (*_JUDGED, "stop_reason")
_ROLLOUT = (*_ANSWER, "group_index", "dropped_reason", "token_ids", "trained")
_LOGPS = ("trained_logp", "sampled_logp")
_SIGNALS = ("advantage", "entropy", *_LOGPS)


def compared_answers(store: RunStore) -> dict[str, Any]:
    """Greedy answers of the last evaluation beside those of the first, by what became of each task.

    ``groups`` holds ``name``, ``title``, ``count`` and the ``pairs`` to show; ``before`` says whether there is a
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
    if not before:
        titles |= {"wrong": "Wrong", "right": "Right"}
    groups = [
        {"name": name, "title": titles[name], "count": len(pairs), "pairs": pairs[: SHOWN[name]]}
        for name, pairs in kinds.items()
        if pairs
    ]
    return {"groups": groups, "before": bool(before)}


def last_rollouts(store: RunStore) -> dict[str, Any] | None:
    """Groups of the last recorded step, token by token; those whose rewards differ come first."""
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
        own = [judged(row, threshold) for row in rows if row["group_index"] == group][:_MOST_ROWS]
        shown = [{**row, **_coloured(row, texts, largest)} if texts else {**row, "pieces": []} for row in own]
        show_pictures(store, own[:1])
        told = {name: own[0][name] for name in ("prompt", "answer", "pictures")}
        groups.append({**told, "rows": shown})
    return {"step": steps[-1], "groups": groups, "colours": _colours(rows) if texts else []}


def show_pictures(store: RunStore, rows: Sequence[dict[str, Any]]) -> None:
    """Give each row ``pictures``: those of its task that can be shown, as links that hold them."""
    for row in rows:
        # A path in the run's folder stays what it is; an absolute one leads to the user's file.
        paths = [store.folder / name for name in json.loads(row["images"] or "[]")]
        links = [data_uri(path.read_bytes()) for path in paths if path.is_file() and path.stat().st_size <= _MOST_BYTES]
        row["pictures"] = [link for link in links if link is not None]


def _greedy(store: RunStore, evaluation: Entry, threshold: float) -> dict[str, dict[str, Any]]:
    """Greedy answers of an evaluation by task key, each marked right or not."""
    if evaluation["step"] not in store.evaluation_steps():
        return {}
    rows = store.evaluation_rows(evaluation["step"], evaluation["name"], _ANSWER, "sample = 0")
    return {row["task_key"]: judged(row, threshold) for row in rows}


def outcome(before: Entry, after: Entry) -> str:
    """What became of a task."""
    if before["right"]:
        return "right" if after["right"] else "lost"
    return "gained" if after["right"] else "wrong"


def judged(row: Entry, threshold: float) -> dict[str, Any]:
    """An answer with ``right``, and the ``badge`` that it gets: none where nobody judged."""
    judged = row["reward"] is not None and row["score_status"] != "error"
    right = judged and row["reward"] >= threshold
    badge = "" if row["score_status"] is None else "right" if right else "wrong" if judged else "not judged"
    return {**row, "right": right, "badge": badge}


def _telling_groups(store: RunStore, step: int) -> list[int]:
    """Indices of the groups to show: learned from rather than dropped, and with different rewards."""
    rewards: dict[int, set[float | None]] = {}
    dropped: set[int] = set()
    for row in store.rollouts(step, ["group_index", "reward", "dropped_reason"]):
        rewards.setdefault(row["group_index"], set()).add(row["reward"])
        if row["dropped_reason"] is not None:
            dropped.add(row["group_index"])
    return sorted(rewards, key=lambda group: (group in dropped, -len(rewards[group]), group))[:_MOST_GROUPS]


def _colours(rows: Sequence[Entry]) -> list[tuple[str, str]]:
    """Name and label of each colouring for which there are numbers."""
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
        told = {"advantage": advantage, "log-probability": logp, "entropy": entropy}
        pieces.append(
            {
                "text": piece.text,
                "trained": row["trained"][at],
                "gain": advantage is not None and advantage > 0,
                "advantage": _strength(advantage, largest),
                "surprise": _strength(logp, 4.0),
                "entropy": _strength(entropy, 2.0),
                "told": ", ".join(f"{name} {number(value)}" for name, value in told.items() if value is not None),
            }
        )
    return {"pieces": pieces, "left_out": len(row["token_ids"]) - start - len(shown)}


def _strength(value: float | None, full: float) -> float:
    """How strong the colour of a value is, from 0 to 1."""
    return 0.0 if value is None or not full or math.isnan(value) else round(min(1.0, abs(value) / full), 2)
