"""What the verdicts on gold pairs, each in both orders, say about a judge.

``logit P(first) = a gold + b order + c length + d own style``: gold is the strength of the label with the sign of the
chosen answer's place, order is 1, length the difference of the logarithms of both lengths in standard deviations, own
style the difference of "written by the judge's model". Where labels have strengths, an order that counts only in the
third or the half of the pairs that are closest takes the place of the order where that is likelier; two thirds of the
level are for the order of all pairs, a sixth for each of these. Errors are clustered by prompt. Further words are
tested one by one beside these effects (`posttrain.statistics.logistic`).
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from posttrain.audit.judges import GoldPair, Judge, Verdict, category_of
from posttrain.errors import UserError
from posttrain.statistics.calibration import calibration_error
from posttrain.statistics.intervals import clustered_mean
from posttrain.statistics.logistic import Array, Effect, Fit, regress, sigmoid

MOST_WORDS = 200
LEAST_PAIRS_OF_WORD = 10
LEAST_OF_CATEGORY = 20
CLOSEST = (1 / 3, 1 / 2)
ORDER_WEIGHTS = (2 / 3, 1 / 6, 1 / 6)
"""Shares of the level that the order of all pairs and those of the closest ones have, where there are all three."""
LIKELIER = 2.0
"""Logarithm of the likelihood by which an order of close pairs alone must be better than one of all."""
_WORD = re.compile(r"[^\W\d_]{2,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A pair with its verdicts: the chosen answer first, then second."""

    pair: GoldPair
    first: Verdict
    second: Verdict

    @property
    def wins(self) -> list[float]:
        """Of the chosen answer, in the orders whose verdicts can be read."""
        second = self.second.win
        return [win for win in (self.first.win, None if second is None else 1.0 - second) if win is not None]

    @property
    def win(self) -> float | None:
        """Of the chosen answer by the mean margin of both orders; None where neither can be read."""
        margins = [sign * v.margin for v, sign in ((self.first, 1), (self.second, -1)) if v.margin is not None]
        total = sum(margins)
        return None if not margins else 0.5 + 0.5 * (total > 0) - 0.5 * (total < 0)


def ask(judge: Judge, pairs: Sequence[GoldPair]) -> list[Asked]:
    """The verdicts on all pairs in both orders."""
    shown = [pair.shown(chosen_first=first) for pair in pairs for first in (True, False)]
    found = judge.verdicts(shown)
    return [Asked(pair=pair, first=found[2 * i], second=found[2 * i + 1]) for i, pair in enumerate(pairs)]


def check_readable(asked: Sequence[Asked], name: str) -> None:
    """Raise `UserError` for a judge none of whose verdicts can be read, with the reason of the first."""
    if not any(one.wins for one in asked):
        why = next((fault for one in asked for fault in (one.first.fault, one.second.fault) if fault), "")
        raise UserError(f"none of {2 * len(asked)} verdicts of {name} can be read: {why or 'no reason is given'}")


def fitted(asked: Sequence[Asked], moving: Sequence[str] = ()) -> tuple[Fit, dict[str, Effect]] | None:
    """The regression, and its effects by name; None where fewer than two prompts have verdicts.

    Words that are known to move verdicts have columns of their own, so that they are no effect of the length.
    """
    rows = _rows(asked)
    if len({one.pair.cluster for one, _, _ in rows}) < 2:
        return None
    sign_N = np.array([sign for _, sign, _ in rows], np.float64)
    strength_N = np.array([one.pair.strength for one, _, _ in rows])
    length_N = sign_N * np.array([_length(one.pair) for one, _, _ in rows])
    columns = {
        "gold": sign_N * strength_N / strength_N.mean(),
        "length": length_N / (length_N.std() or 1.0),
        "own style": sign_N * np.array([one.pair.own for one, _, _ in rows]),
        **{f"word {word}": column_N for word, column_N in _word_columns(asked, moving).items()},
    }
    columns = {name: column_N for name, column_N in columns.items() if column_N.any()}
    orders = [("order", np.ones(len(rows)))]
    for share in CLOSEST if len(set(strength_N.tolist())) > 1 else ():
        orders.append(("order where close", (strength_N <= np.quantile(strength_N, share)).astype(np.float64)))
    outcome_N, clusters = np.array([win for _, _, win in rows]), [one.pair.cluster for one, _, _ in rows]
    fits = []
    for name, column_N in orders:
        own = {**columns, name: column_N}
        fits.append((regress(np.stack([*own.values()], 1), outcome_N, clusters), [*own]))
    best = max(range(1, len(fits)), key=lambda place: fits[place][0].likelihood, default=0)
    place = best if fits[best][0].likelihood >= fits[0][0].likelihood + LIKELIER else 0
    fit, names = fits[place]
    effects = dict(zip(names, fit.effects, strict=True))
    # One of several was chosen: each has its share of the level.
    weight = ORDER_WEIGHTS[place] if len(fits) > 1 else 1.0
    effects[names[-1]] = replace(fit.effects[-1], p_value=min(1.0, fit.effects[-1].p_value / weight))
    return fit, effects


def _rows(asked: Sequence[Asked]) -> list[tuple[Asked, int, float]]:
    """The readable verdicts: the pair, 1 where the chosen answer is first and -1 where second, the first one's win."""
    both = [(one, sign, verdict.win) for one in asked for sign, verdict in ((1, one.first), (-1, one.second))]
    return [(one, sign, win) for one, sign, win in both if win is not None]


def _length(pair: GoldPair) -> float:
    return math.log((len(pair.chosen) + 1) / (len(pair.rejected) + 1))


def words(asked: Sequence[Asked], fit: Fit) -> dict[str, float]:
    """p-values of the words that stand in one answer alone of at least ten pairs: do they move verdicts as well?"""
    counts: dict[str, int] = defaultdict(int)
    for one in asked:
        for word in _words(one.pair.chosen) ^ _words(one.pair.rejected):
            counts[word] += 1
    common = sorted((word for word, n in counts.items() if n >= LEAST_PAIRS_OF_WORD), key=lambda w: (-counts[w], w))
    columns = _word_columns(asked, common[:MOST_WORDS])
    return {word: fit.test(column_N) for word, column_N in columns.items()}


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))


def _word_columns(asked: Sequence[Asked], wanted: Sequence[str]) -> dict[str, Array]:
    """[rows] by word: 1 where the first answer alone has it, -1 where the second alone has."""
    own = {id(one): (_words(one.pair.chosen), _words(one.pair.rejected)) for one in asked}
    rows = _rows(asked)
    return {
        word: np.array([sign * ((word in own[id(one)][0]) - (word in own[id(one)][1])) for one, sign, _ in rows], float)
        for word in wanted
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share with its interval."""

    value: float
    low: float
    high: float
    count: int


def share(values: Sequence[float], clusters: Sequence[str], level: float = 0.95) -> Share:
    """Mean of shares in clusters, with an interval within [0, 1]; none counted is 0 to 1."""
    if not values:
        return Share(value=math.nan, low=0.0, high=1.0, count=0)
    found = clustered_mean(values, clusters, level)
    return Share(
        value=found.value,
        low=max(0.0, found.interval.low),
        high=min(1.0, found.interval.high),
        count=len(values),
    )


def accuracy(asked: Sequence[Asked], level: float = 0.95) -> Share:
    """Share of readable verdicts that prefer the chosen answer, ties half."""
    rows = [(win, one.pair.cluster) for one in asked for win in one.wins]
    return share([win for win, _ in rows], [cluster for _, cluster in rows], level)


def strict(asked: Sequence[Asked]) -> Share:
    """Share of pairs whose chosen answer is preferred in both orders."""
    return share([float(one.wins == [1.0, 1.0]) for one in asked], [one.pair.cluster for one in asked])


def flips(asked: Sequence[Asked]) -> Share:
    """Share of pairs, readable in both orders, in which the verdict changes with the order."""
    both = [one for one in asked if len(one.wins) == 2]
    return share([float(one.wins[0] != one.wins[1]) for one in both], [one.pair.cluster for one in both])


def categories(asked: Sequence[Asked]) -> dict[str, Share]:
    """Accuracy by category of at least 20 pairs, at the level of 99 %; empty for one category."""
    groups: dict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        groups[category_of(one.pair)].append(one)
    large = {name: own for name, own in groups.items() if name and len(own) >= LEAST_OF_CATEGORY}
    return {name: accuracy(own, 0.99) for name, own in large.items()} if len(large) > 1 else {}


def cycles(asked: Sequence[Asked]) -> tuple[int, int, float, float] | None:
    """Triples of answers of one prompt: cyclic ones, all, the number expected of independent verdicts, its std.

    Expected are verdicts that are right with a probability that grows with the strength, as fitted to these. None
    where no prompt has three answers in three pairs.
    """
    prompts: dict[str, dict[frozenset[str], Asked]] = defaultdict(dict)
    for one in asked:
        if one.win is not None:
            prompts[one.pair.cluster][frozenset((one.pair.chosen, one.pair.rejected))] = one
    triples = [own for found in prompts.values() for own in _triples(found)]
    if not triples:
        return None
    pairs = [one for found in prompts.values() for one in found.values()]
    strength_N = np.array([one.pair.strength for one in pairs])
    won_N = np.array([one.win for one in pairs], np.float64)
    slope = regress(strength_N[:, None], won_N, [*range(len(pairs))]).effects[0].value if len(pairs) > 1 else 0.0
    cyclic = sum(_cyclic([_winner(one) for one in own]) for own in triples)
    expected = [_chance_of_cycle(own, slope) for own in triples]
    return cyclic, len(triples), sum(expected), math.sqrt(sum(p * (1 - p) for p in expected))


def _triples(found: dict[frozenset[str], Asked]) -> list[list[Asked]]:
    texts = sorted(set().union(*found)) if found else []
    keys = [
        [frozenset((a, b)), frozenset((b, c)), frozenset((a, c))]
        for i, a in enumerate(texts)
        for j, b in enumerate(texts[i + 1 :], i + 1)
        for c in texts[j + 1 :]
    ]
    return [[found[key] for key in own] for own in keys if all(key in found for key in own)]


def _winner(one: Asked) -> str | None:
    """The answer that is preferred; None for a tie."""
    return None if one.win == 0.5 else one.pair.chosen if one.win == 1.0 else one.pair.rejected


def _cyclic(winners: Sequence[str | None]) -> bool:
    return None not in winners and len(set(winners)) == 3


def _chance_of_cycle(own: Sequence[Asked], slope: float) -> float:
    right = [float(sigmoid(slope * one.pair.strength)) for one in own]
    total = 0.0
    for outcome in range(8):
        bits = [bool(outcome >> place & 1) for place in range(3)]
        winners = [one.pair.chosen if bit else one.pair.rejected for one, bit in zip(own, bits, strict=True)]
        chance = math.prod(p if bit else 1 - p for p, bit in zip(right, bits, strict=True))
        total += chance * _cyclic(winners)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How the stated probabilities agree with the labels."""

    error: float
    """Over ten equal bins."""
    slope: Effect
    """Of the outcome in the stated log-odds: 1 is calibrated, less is overconfident."""


def calibration(asked: Sequence[Asked]) -> Calibration | None:
    """None where fewer than two pairs have a stated probability."""
    stated = [
        (v.chance, sign > 0, one.pair.cluster)
        for one in asked
        for sign, v in ((1, one.first), (-1, one.second))
        if v.chance is not None
    ]
    if len({cluster for _, _, cluster in stated}) < 2:
        return None
    chance_N = np.clip([chance for chance, _, _ in stated], 1e-9, 1 - 1e-9)
    right = [right for _, right, _ in stated]
    logit_N = np.log(chance_N / (1 - chance_N))
    if not logit_N.any():
        return None
    scale = float(logit_N.std()) or 1.0
    fit = regress(logit_N[:, None] / scale, np.array(right, np.float64), [cluster for _, _, cluster in stated])
    found = fit.effects[0]
    slope = Effect(
        value=found.value / scale,
        standard_error=found.standard_error / scale,
        p_value=found.p_value,
        clusters=found.clusters,
    )
    return Calibration(error=calibration_error(chance_N.tolist(), right), slope=slope)


def contrasts(asked: Sequence[Asked]) -> list[tuple[Asked, Asked]]:
    """Pairs of the same two answers whose labels are opposite under different principles."""
    seen: dict[tuple[str, str, str], Asked] = {}
    found = []
    for one in asked:
        pair = one.pair
        if not pair.principle:
            continue
        other = seen.pop((pair.cluster, pair.rejected, pair.chosen), None)
        if other is not None and other.pair.principle != pair.principle:
            found.append((other, one))
        else:
            seen[pair.cluster, pair.chosen, pair.rejected] = one
    return found
