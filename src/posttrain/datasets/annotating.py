"""Labels of simulated annotators: preferences from what is known of two texts, and scores from true ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from posttrain.components.annotators import Annotator, Shown, named
from posttrain.types import Preference, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two texts, and what is known of them."""

    texts: tuple[str, str]
    gap: float
    """Quality of the first less that of the second."""
    traits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    writers: tuple[str, str] = ("", "")
    principle: str | None = None
    number: int = 0
    """How many tasks come before."""


def preferences(
    compared: Compared, annotators: Sequence[Annotator], key: str, *, rng: Random | None = None
) -> tuple[Preference, ...]:
    """A preference of each annotator that has one; without annotators the true one, none of equal texts.

    Each sees the texts in an order of its own. The fields of a preference are ``first``, which text was shown first
    (chosen or rejected), and ``gold_gap``, by how much the chosen one is truly better. Its strength is that of the
    opinion. The draws are a function of `key` and of the annotator's name; with `rng` the order alone is, and opinions
    are drawn from it.
    """
    if not annotators:
        return (_preference(compared, compared.gap, None, False),) if compared.gap else ()
    found = []
    for name, annotator in named(annotators):
        own = Random(f"annotators:{key}:{name}")
        swapped, draws = own.random() < 0.5, rng or own
        one, other = (1, 0) if swapped else (0, 1)
        shown = Shown(
            texts=(compared.texts[one], compared.texts[other]),
            traits={trait: (both[one], both[other]) for trait, both in compared.traits.items()},
            writers=(compared.writers[one], compared.writers[other]),
            number=compared.number,
        )
        opinion = annotator.opinion(-compared.gap if swapped else compared.gap, shown, draws)
        if opinion is None:
            continue
        opinion = opinion or draws.choice((-1e-9, 1e-9))
        found.append(_preference(compared, -opinion if swapped else opinion, name, swapped))
    return tuple(found)


def _preference(compared: Compared, opinion: float, name: str | None, swapped: bool) -> Preference:
    """The preference by an opinion of the texts in their own order."""
    better, worse = (0, 1) if opinion > 0 else (1, 0)
    first = {} if name is None else {"first": "chosen" if swapped == (better == 1) else "rejected"}
    return Preference(
        chosen=compared.texts[better],
        rejected=compared.texts[worse],
        strength=abs(opinion),
        annotator=name,
        principle=compared.principle,
        aspects={trait: (both[better], both[worse]) for trait, both in compared.traits.items()},
        fields={**first, "gold_gap": compared.gap if better == 0 else -compared.gap},
    )


def relabelled(
    pair: Preference,
    annotators: Sequence[Annotator],
    key: str,
    *,
    task: Task | None = None,
    strength: float = 1.0,
    number: int = 0,
) -> tuple[Preference, ...]:
    """What annotators prefer of a pair that is true, by `strength` where it states none."""
    about = {**(task.fields if task is not None else {}), **pair.fields}
    known = {name: (a, b) for name, (a, b) in pair.aspects.items() if a is not None and b is not None}
    compared = Compared(
        texts=(pair.chosen, pair.rejected),
        gap=pair.strength if pair.strength is not None else strength,
        traits=known,
        writers=(str(about.get("writer_chosen", "")), str(about.get("writer_rejected", ""))),
        principle=pair.principle,
        number=number,
    )
    found = preferences(compared, annotators, key)
    kept = {name: value for name, value in pair.fields.items() if name not in ("first", "gold_gap")}
    return tuple(
        replace(
            one,
            user=pair.user,
            reference=pair.reference,
            aspects={name: both if one.chosen == pair.chosen else both[::-1] for name, both in pair.aspects.items()},
            fields={**_turned(kept, one, pair), **one.fields},
        )
        for one in found
    )


def _turned(fields: Mapping[str, Any], one: Preference, pair: Preference) -> dict[str, Any]:
    """The fields of a pair; what is listed for both texts is exchanged where they are."""
    if one.chosen == pair.chosen:
        return dict(fields)
    other = {"writer_chosen": "writer_rejected", "writer_rejected": "writer_chosen"}
    sides = {name: fields[other.get(name, name)] for name in fields if other.get(name, name) in fields}
    lists = {name: sides[name][::-1] for name in ("origin", "notes") if isinstance(sides.get(name), list)}
    return {**sides, **lists}


def score(true: float, annotators: Sequence[Annotator], rng: Random, *, middle: float = 0.0) -> float | None:
    """The mean of the scores that annotators give one text; None where none gives any, the true one without any."""
    if not annotators:
        return true
    given = [annotator.opinion(true, Shown(middle=middle), rng) for annotator in annotators]
    known = [one for one in given if one is not None]
    if len(known) < 2:
        return known[0] if known else None
    return sum(known) / len(known)
