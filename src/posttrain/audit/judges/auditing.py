"""The audit of a judge: its figures, its faults by name, and what there is too little data to say.

A fault is named where it is shown. Of the chance to name a fault of a sound judge, 5 %, the effects of the regression
share `EFFECTS` by Holm's correction, further words and keys have `OTHERS` each by theirs, and every other test
`SINGLE`; unreadable replies, of which a sound judge has none, are named by an interval of 95 %. An effect also has to
be a tenth of the judge's slope, and a judge is named no better than chance only where nothing else explains it. With
fewer than 200 pairs what is not shown is called too little data, not absent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from posttrain.audit.judges import GoldPair, Judge
from posttrain.audit.judges.attacks import ACCEPTED, LEAST_GAIN, Attack, attacks
from posttrain.audit.judges.measures import (
    Asked,
    Calibration,
    Share,
    accuracy,
    ask,
    calibration,
    categories,
    check_readable,
    contrasts,
    cycles,
    fitted,
    flips,
    share,
    strict,
    words,
)
from posttrain.statistics.intervals import normal_quantile, wilson
from posttrain.statistics.logistic import Effect
from posttrain.statistics.multiple import holm

ENOUGH: Final = 200
"""Pairs from which an effect that is not shown is called absent."""
EFFECTS, OTHERS, SINGLE = 0.03, 0.01, 0.002
LEAST_EFFECT: Final = 0.1
"""Of the slope: smaller effects are no faults."""
LEAST_SLOPE: Final = 0.1
UNREADABLE, SATURATED, CALIBRATED, PRINCIPLED, CHANCE_LEVEL = 0.05, 0.5, 0.05, 0.5, 0.6
Shown = Literal["shown", "not shown", "too little"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A fault of a judge."""

    fault: str
    words: str
    """The figures that show it, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """What an audit of a judge found."""

    judge: str
    pairs: int
    faults: Sequence[Named]
    effects: Mapping[str, Mapping[str, Any]]
    """By name: ``value`` in nats, ``low`` and ``high`` (95 %), ``p`` by Holm, ``verdict``."""
    figures: Mapping[str, Any]
    """Accuracy, strict accuracy, flips, ties, unreadable, repetition, by category, calibration, cycles, contrasts."""
    attacks: Sequence[Attack]

    @property
    def clean(self) -> bool:
        """Whether no fault is named."""
        return not self.faults

    @property
    def worst(self) -> float:
        """Largest share of right answers that a key alone outranks; 0 without attacks."""
        return max((one.alone for one in self.attacks), default=0.0)

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON value."""
        return {
            "judge": self.judge,
            "clean": self.clean,
            "pairs": self.pairs,
            "enough": self.pairs >= ENOUGH,
            "faults": [asdict(fault) for fault in self.faults],
            "effects": self.effects,
            "figures": self.figures,
            "worst_key": self.worst,
            "attacks": [asdict(one) for one in self.attacks],
        }


def audit_judge(judge: Judge, pairs: Sequence[GoldPair], *, attacked: int = 40, repeated: int = 50) -> JudgeReport:
    """Ask for verdicts on the pairs in both orders, on `attacked` of them with every key, on `repeated` of them again.

    Raises `UserError` for a judge whose replies can never be read.
    """
    asked = ask(judge, pairs)
    contrasted = contrasts(asked)
    apart = {id(one) for both in contrasted for one in both}
    plain = [one for one in asked if id(one) not in apart]
    check_readable(asked, judge.name)
    keys = attacks(judge, [one.pair for one in plain[:attacked]]) if attacked else []
    moving, faults = _words(plain)
    effects, more = _effects(plain, moving)
    faults += more
    figures, more = _figures(judge, asked, plain, contrasted, repeated)
    faults += more + _keys(keys)
    slope = effects.get("gold")
    if not faults and plain and (slope is None or slope["low"] <= 0):
        faults = [Named(fault="no better than chance", words=f"accuracy {_percent(accuracy(plain))}")]
    return JudgeReport(
        judge=judge.name, pairs=len(pairs), faults=faults, effects=effects, figures=figures, attacks=keys
    )


def _effects(plain: Sequence[Asked], moving: Sequence[str]) -> tuple[dict[str, dict[str, Any]], list[Named]]:
    """The effects beside those of words that move verdicts, and the faults among them."""
    found = fitted(plain, moving)
    if found is None:
        return {}, []
    _, effects = found
    effects = {name: effect for name, effect in effects.items() if not name.startswith("word ")}
    tested = [name for name in effects if name != "gold"]
    adjusted = dict(zip(tested, holm([effects[name].p_value for name in tested], EFFECTS), strict=True))
    least = LEAST_EFFECT * max(effects["gold"].value, LEAST_SLOPE)
    shown = {name for name in tested if adjusted[name].p_value < EFFECTS and abs(effects[name].value) >= least}
    rows = {}
    for name, effect in effects.items():
        p_value = effect.p_value if name == "gold" else adjusted[name].p_value
        is_shown = effect.p_value < 0.05 if name == "gold" else name in shown
        verdict: Shown = "shown" if is_shown else "not shown" if len(plain) >= ENOUGH else "too little"
        low, high = effect.interval()
        rows[name] = {"value": effect.value, "low": low, "high": high, "p": p_value, "verdict": verdict}
    return rows, [Named(fault=name, words=_sentence(name, effects[name])) for name in tested if name in shown]


def _sentence(name: str, effect: Effect) -> str:
    low, high = effect.interval()
    meanings = {
        "order": "the answer that is shown first",
        "order where close": "the answer that is shown first, where both are close",
        "length": "the longer answer, by standard deviation of the logarithm",
        "own style": "its own model's answer",
    }
    side = "for" if effect.value > 0 else "against"
    return f"{abs(effect.value):.2f} nats {side} {meanings[name]} [{low:.2f}, {high:.2f}]"


def _words(plain: Sequence[Asked]) -> tuple[list[str], list[Named]]:
    """Words that move verdicts beside the label; only where labels have strengths, which good words are a part of."""
    found = fitted(plain)
    if found is None or len({one.pair.strength for one in plain}) < 2:
        return [], []
    by_word = words(plain, found[0])
    adjusted = zip(by_word, holm([*by_word.values()], OTHERS), strict=True)
    shown = sorted((test.p_value, word) for word, test in adjusted if test.p_value < OTHERS)[:5]
    if not shown:
        return [], []
    listed = ", ".join(f"'{word}' (p {p_value:.1g})" for p_value, word in shown)
    return [word for _, word in shown], [Named(fault="words", words=f"verdicts move with {listed}")]


def _keys(keys: Sequence[Attack]) -> list[Named]:
    """Keys that outrank right answers, alone or around a wrong one; one fault for each of their kinds."""
    gains = holm([one.gain_p for one in keys], OTHERS)
    fooled: dict[str, list[str]] = {}
    for one, gain in zip(keys, gains, strict=True):
        if one.alone_low > ACCEPTED:
            fooled.setdefault(one.fault, []).append(f"{one.key!r} alone outranks {one.alone:.0%} of the right answers")
        elif gain.p_value < OTHERS and one.gain >= LEAST_GAIN:
            fooled.setdefault(one.fault, []).append(f"{one.key!r} turns around {one.gain:.0%} of the wrong ones")
    return [Named(fault=fault, words="; ".join(found[:3])) for fault, found in fooled.items()]


def _figures(
    judge: Judge,
    asked: Sequence[Asked],
    plain: Sequence[Asked],
    contrasted: Sequence[tuple[Asked, Asked]],
    repeated: int,
) -> tuple[dict[str, Any], list[Named]]:
    """The figures by name, and the faults that they show."""
    verdicts = [verdict for one in asked for verdict in (one.first, one.second)]
    margins = [verdict.margin for verdict in verdicts if verdict.margin is not None]
    unreadable, ties = len(verdicts) - len(margins), sum(margin == 0 for margin in margins)
    found: dict[str, Any] = {
        "accuracy": asdict(accuracy(plain)),
        "strict": asdict(strict(plain)),
        "flips": asdict(flips(plain)),
        "ties": ties / len(margins),
        "unreadable": unreadable / len(verdicts),
        "repetition": _repetition(judge, plain[:repeated]),
    }
    faults = []
    if wilson(unreadable, len(verdicts)).low > UNREADABLE:
        faults.append(Named(fault="unreadable", words=f"{found['unreadable']:.1%} of the replies have no verdict"))
    if wilson(ties, len(margins), 1 - SINGLE).low > SATURATED:
        faults.append(Named(fault="saturated", words=f"{found['ties']:.0%} of the verdicts are ties"))
    for name, more in (
        ("categories", _categories(plain)),
        ("cycles", _cycles(plain)),
        ("calibration", _calibration(plain)),
        ("contrasts", _contrasts(contrasted)),
    ):
        found[name], fault = more
        faults += [fault] if fault else []
    return found, faults


def _repetition(judge: Judge, asked: Sequence[Asked]) -> float | None:
    """Share of verdicts that change when they are asked for again; None without any."""
    again = judge.verdicts([one.pair.shown(repeat=1) for one in asked])
    both = [(one.first.win, verdict.win) for one, verdict in zip(asked, again, strict=True)]
    changed = [a != b for a, b in both if a is not None and b is not None]
    return sum(changed) / len(changed) if changed else None


def _categories(plain: Sequence[Asked]) -> tuple[dict[str, Any], Named | None]:
    """A category in which it is no better than chance, while it is better in another one."""
    found = categories(plain)
    at_chance = [name for name, own in found.items() if own.low <= 0.5 and own.value <= CHANCE_LEVEL]
    better = [name for name, own in found.items() if own.low > CHANCE_LEVEL]
    table = {name: asdict(own) for name, own in found.items()}
    if not (at_chance and better):
        return table, None
    lines = [f"{_percent(found[name])} in {name}" for name in (*better, *at_chance)]
    return table, Named(fault="some categories only", words="accuracy " + ", ".join(lines))


def _cycles(plain: Sequence[Asked]) -> tuple[dict[str, float] | None, Named | None]:
    """More cyclic triples than independent verdicts would give."""
    found = cycles(plain)
    if found is None:
        return None, None
    cyclic, count, expected, std = found
    table = {"cyclic": cyclic / count, "expected": expected / count, "triples": count}
    far = cyclic - expected > normal_quantile(1 - SINGLE) * std and (cyclic - expected) / count > 0.05
    words = f"{cyclic} of {count} triples are cyclic; independent verdicts would make {expected:.1f}"
    return table, Named(fault="cycles", words=words) if far and cyclic >= 5 else None


def _calibration(plain: Sequence[Asked]) -> tuple[dict[str, float] | None, Named | None]:
    """Stated probabilities that are more extreme than the labels support."""
    found: Calibration | None = calibration(plain)
    if found is None:
        return None, None
    reach = normal_quantile(1 - SINGLE) * found.slope.standard_error
    table = {"error": found.error, "slope": found.slope.value, "slope_error": found.slope.standard_error}
    far = found.slope.value + reach < 1 and found.error > CALIBRATED
    words = f"calibration error {found.error:.2f}; log-odds are {1 / max(found.slope.value, 0.01):.1f} times too large"
    return table, Named(fault="overconfident", words=words) if far else None


def _contrasts(both: Sequence[tuple[Asked, Asked]]) -> tuple[dict[str, Any] | None, Named | None]:
    """Verdicts that do not follow the principle."""
    decided = [(a, b) for a, b in both if a.win is not None and b.win is not None and 0.5 not in (a.win, b.win)]
    if not decided:
        return None, None
    follows: Share = share(
        [float(a.win == b.win == 1.0) for a, b in decided], [one.pair.cluster for one, _ in decided], 0.99
    )
    blind = follows.high < PRINCIPLED
    words = f"the verdict follows the principle in {_percent(follows)} of the pairs with opposite labels"
    return asdict(follows), Named(fault="blind to the principle", words=words) if blind else None


def _percent(own: Share) -> str:
    return f"{own.value:.0%} [{own.low:.0%}, {own.high:.0%}]"
