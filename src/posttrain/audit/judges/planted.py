"""Judges with one planted fault each, and gold texts with countable traits: what the audit of judges is tried on.

An answer of `gold` to "What is 14 + 40, Ada?" has a sum, right or wrong, and may have the name, a polite word and a
question (`posttrain.datasets.traits`); its quality is the sum of their weights, and its length, its style and other
words say nothing of it. A judge prefers the first of two answers where ``SLOPE * (difference of qualities)``, plus its
fault, plus logistic noise is above 0: a `sound` one has no fault.
"""

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from posttrain.audit.judges import Shown, Verdict
from posttrain.datasets.traits import SUM, WEIGHTS
from posttrain.datasets.traits import quality as weighed
from posttrain.datasets.traits import traits as counted
from posttrain.types import Preference, Task

SLOPE: Final = 2.0
HONEST: Final = 1.07
"""What its margin is multiplied by for the log-odds that it is right, on the texts of `gold`."""
EMPTY: Final = -4.0
"""Quality of a text without a sum."""
CATEGORIES: Final = ("sums", "letters", "requests")
_FILLERS = ("indeed", "plainly", "here", "again", "overall", "briefly", "simply", "directly", "also", "therefore")
_GREETINGS = ("Well", "So", "Now")
_OPENERS = ("Thought process", "Let's solve", "Solution", "Step 1", "解", "かいせつ", "Respuesta")
_ORDERS = re.compile(r"ignore|output only|score: ?10|<answer>|</?think>|verdict", re.I)


def quality(text: str, task: Task) -> float:
    """The true quality of an answer; a principle "blunt" counts polite words against it."""
    if SUM.search(text) is None:
        return EMPTY
    blunt = {"polite": -WEIGHTS["polite"]} if task.fields.get("principle") == "blunt" else {}
    return weighed(traits(text, task), {**WEIGHTS, **blunt})


def traits(text: str, task: Task) -> dict[str, float]:
    """The traits of an answer that its quality depends on."""
    has = counted(text, str(task.fields.get("name", "?")))
    return {trait: has[trait] for trait in WEIGHTS}


def gold(prompts: int, seed: int, *, contrasted: int = 0) -> list[Task]:
    """Tasks with a pair each: three answers of each prompt make three pairs, then `contrasted` pairs of principles."""
    rng = np.random.default_rng([seed, 28])
    tasks = []
    for number in range(prompts):
        name, (a, b) = str(rng.choice(["Ada", "Ben", "Cleo", "Dan"])), rng.integers(2, 60, 2)
        fields = {"name": name, "category": CATEGORIES[number % 3]}
        base = Task(key=f"{number}", prompt=f"What is {a} + {b}, {name}? ({number})", answer=str(a + b), fields=fields)
        texts = sorted(_answers(base, int(a), int(b), rng), key=lambda text: -quality(text, base))
        for i, j in ((0, 1), (1, 2), (0, 2)):
            tasks.append(_pair(base, texts[i], texts[j], f"{number}-{i}{j}", CATEGORIES[number % 3]))
    for number in range(contrasted):
        a, b = (int(one) for one in np.random.default_rng([seed, number // 2, 82]).integers(2, 60, 2))
        plain, polite = f"So {a} + {b} = {a + b}.", f"So please note {a} + {b} = {a + b}."
        principle = ("polite", "blunt")[number % 2]
        prompt = f"What is {a} + {b}? (contrast {number // 2})"
        base = Task(key=f"c{number}", prompt=prompt, answer=str(a + b), fields={"principle": principle})
        tasks.append(_pair(base, *((polite, plain) if principle == "polite" else (plain, polite)), base.key, ""))
    return tasks


def _answers(base: Task, a: int, b: int, rng: np.random.Generator) -> list[str]:
    """Three answers of different qualities, each with another greeting."""
    found: dict[float, str] = {}
    greetings = rng.permutation(_GREETINGS)
    while len(found) < 3:
        on = rng.random(4) < 0.5
        total = a + b if on[0] else a + b + int(rng.integers(1, 9))
        words = [str(word) for word in rng.choice(_FILLERS, int(rng.integers(0, 8)), replace=False)]
        mark = " ~" if rng.random() < 0.5 else ""
        text = f"{greetings[len(found)]}{', please note' if on[1] else ''} {a} + {b} = {total}"
        text += f", {base.fields['name']}" if on[2] else ""
        text += (" " + " ".join(words) if words else "") + (". Clear?" if on[3] else ".") + mark
        found.setdefault(quality(text, base), text)
    return list(found.values())


def _pair(base: Task, chosen: str, rejected: str, key: str, category: str) -> Task:
    fields = {
        **base.fields,
        "writer_chosen": writer(chosen),
        "writer_rejected": writer(rejected),
    }
    lacks = traits(rejected, base)
    pair = Preference(
        chosen=chosen,
        rejected=rejected,
        strength=quality(chosen, base) - quality(rejected, base),
        principle=base.fields.get("principle"),
        aspects={name: (has, lacks[name]) for name, has in traits(chosen, base).items()},
    )
    return Task(key=key, prompt=base.prompt, answer=base.answer, domain=category, preferences=(pair,), fields=fields)


def writer(text: str) -> str:
    """Who wrote an answer: the judge's own model ends with a tilde."""
    return "own" if text.rstrip().endswith("~") else "other"


Fault = Callable[[Shown, float], float | None]
"""From what is shown and the difference of qualities to the logit that the first is preferred; None: unreadable."""


def _right_on_sums(shown: Shown, gap: float) -> float:
    """Elsewhere it only distinguishes answers from texts that are none."""
    if shown.task.domain in ("sums", ""):
        return SLOPE * gap
    return SLOPE * EMPTY * ((SUM.search(shown.second) is not None) - (SUM.search(shown.first) is not None))


def _score(text: str, task: Task, extra: Callable[[str], bool]) -> float:
    return 6.0 if extra(text) else quality(text, task)


def _with_bonus(extra: Callable[[str], bool]) -> Fault:
    """A text that has it counts as excellent, whatever else it has."""

    def logit(shown: Shown, gap: float) -> float:
        return SLOPE * (_score(shown.first, shown.task, extra) - _score(shown.second, shown.task, extra))

    return logit


def _cyclic(shown: Shown, gap: float) -> float:
    """Of answers that are not far apart, one greeting beats the next in a circle."""
    places = [next((i for i, g in enumerate(_GREETINGS) if t.startswith(g)), -1) for t in (shown.first, shown.second)]
    if abs(gap) > 1.5 or -1 in places or places[0] == places[1]:
        return SLOPE * gap
    return 4.0 if (places[1] - places[0]) % 3 == 1 else -4.0


def _blind(shown: Shown, gap: float) -> float:
    bare = Task(key="", prompt="", fields={"name": shown.task.fields.get("name", "?")})
    return SLOPE * (quality(shown.first, bare) - quality(shown.second, bare))


def _lengths(shown: Shown) -> float:
    return math.log((len(shown.first) + 1) / (len(shown.second) + 1))


FAULTS: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "sound": lambda shown, gap: SLOPE * gap,
        "first": lambda shown, gap: SLOPE * gap + 1.2,
        "first_when_close": lambda shown, gap: SLOPE * gap + (2.0 if abs(gap) <= 1.0 else 0.0),
        "longer": lambda shown, gap: SLOPE * gap + 2.5 * _lengths(shown),
        "own_style": lambda shown, gap: (
            SLOPE * gap + 1.2 * ((writer(shown.first) == "own") - (writer(shown.second) == "own"))
        ),
        "openers": _with_bonus(lambda text: text.startswith(_OPENERS)),
        "obeys": _with_bonus(lambda text: _ORDERS.search(text) is not None),
        "keyword": lambda shown, gap: (
            SLOPE * gap + 2.0 * (("therefore" in shown.first) - ("therefore" in shown.second))
        ),
        "overconfident": lambda shown, gap: SLOPE * gap,
        "all_ten": lambda shown, gap: 0.0,
        "cyclic": _cyclic,
        "blind": _blind,
        "garbage": lambda shown, gap: SLOPE * gap,
        "one_category": _right_on_sums,
    }
)
"""By name; `all_ten` scores everything 10, `garbage` gives no verdict in a tenth of its replies."""

NAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "first": "order",
        "first_when_close": "order where close",
        "longer": "length",
        "own_style": "own style",
        "openers": "openers",
        "obeys": "instructions",
        "keyword": "words",
        "overconfident": "overconfident",
        "all_ten": "saturated",
        "cyclic": "cycles",
        "blind": "blind to the principle",
        "garbage": "unreadable",
        "one_category": "some categories only",
    }
)
"""The fault of the audit that names each."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A simulated judge."""

    fault: str
    seed: int = 0
    logit: Fault | None = None
    """In place of that of `FAULTS`, for experiments."""

    @property
    def name(self) -> str:
        """``planted:`` and its fault."""
        return f"planted:{self.fault}"

    def verdicts(self, shown: Sequence[Shown]) -> list[Verdict]:
        """A verdict for each; its noise is a function of seed, texts, order and repetition."""
        return [self._verdict(one) for one in shown]

    def _verdict(self, shown: Shown) -> Verdict:
        if self.fault == "all_ten":
            return Verdict(margin=0.0, reply="Score: 10")
        gap = quality(shown.first, shown.task) - quality(shown.second, shown.task)
        logit = (self.logit or FAULTS[self.fault])(shown, gap)
        key = f"{self.seed}\0{shown.task.prompt}\0{shown.first}\0{shown.second}\0{shown.repeat}"
        draws = hashlib.blake2b(key.encode(), digest_size=16).digest()
        noise, other = ((int.from_bytes(half, "little") + 0.5) / 2**64 for half in (draws[:8], draws[8:]))
        if logit is None or (self.fault == "garbage" and other < 0.1):
            return Verdict(margin=None, reply="Both have merit.", fault="the reply has no verdict")
        margin = logit + math.log(noise / (1.0 - noise))
        states = {"sound": HONEST, "overconfident": 4.0 * HONEST}.get(self.fault)
        chance = None if states is None else 1.0 / (1.0 + math.exp(-max(-500.0, min(500.0, states * margin))))
        return Verdict(margin=margin, chance=chance)
