"""The likeliest first tokens after a prompt, as endpoints state them, and the log-probabilities of labels among them.

Chat completions have a list for each token (``logprobs``, ``top_logprobs``), text completions a mapping of texts. An
endpoint states some tokens only, up to 20, and in several spellings: " Yes" and "Yes" both begin the answer Yes.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.errors.foreign import parse_json

Likeliest = list[tuple[str, float]]


def asked(chat: bool, count: int) -> dict[str, Any]:
    """Fields of a request for the likeliest tokens."""
    return {"logprobs": True, "top_logprobs": count} if chat else {"logprobs": count}


def likeliest_of(choice: Mapping[str, Any]) -> Likeliest | None:
    """Text and log-probability of the likeliest first tokens in a choice; None where it states none.

    Raises `LookupError`, `TypeError` or `ValueError` for another form.
    """
    given = choice.get("logprobs")
    if given is None:
        return None
    if "content" in given:
        first = (given["content"] or [{"top_logprobs": []}])[0]["top_logprobs"]
        pairs = [(entry["token"], entry["logprob"]) for entry in first]
    else:
        tops = given["top_logprobs"]
        if tops is None:
            return None
        pairs = list((tops[0] if tops else {}).items())
    return [(str(token), _number(logp)) for token, logp in pairs]


def _number(logp: Any) -> float:
    """A log-probability. Raises `ValueError` for another number."""
    number = float(logp)
    if math.isnan(number) or number > 1e-3:
        raise ValueError(f"{number} is no log-probability")
    return min(number, 0.0)


def written(found: Likeliest | None) -> str:
    """As a text, to be recorded."""
    return json.dumps(found)


def read(text: str) -> Likeliest | None:
    """The recorded text as a value."""
    found: Any = parse_json(text)
    return None if found is None else [(token, float(logp)) for token, logp in found]


def of_labels(found: Likeliest, labels: Sequence[str]) -> list[float] | None:
    """[K] log-probability of each label: of all stated tokens that are the label but for space around it.

    A label that is not among them has the largest log-probability that it can have: at most that of the least likely
    stated one, and at most what the stated ones leave. None where no label is among them.
    """
    sums = [sum(math.exp(logp) for token, logp in found if token.strip() == label.strip()) for label in labels]
    if not any(sums):
        return None
    left = max(1.0 - sum(math.exp(logp) for _, logp in found), 0.0)
    most = min(left, min(math.exp(logp) for _, logp in found))
    return [math.log(value) if value else math.log(max(most, 1e-12)) for value in sums]
