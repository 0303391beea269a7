"""Splits a budget for annotation between demonstrations and preference pairs, and makes the recipe of each split.

Source: Raghavendra et al. 2025, arXiv:2502.11284. A share s of the budget B is spent on demonstrations and the rest on
pairs: n_sft = floor(s B / c_sft), n_pref = floor((B - n_sft c_sft) / c_pref), so that n_sft c_sft + n_pref c_pref <= B.
With a share of 1 there are no pairs, and where n_sft is 0 the split is that of share 0.

All arithmetic is exact: a share or cost is the decimal number that was written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from posttrain.errors import UserError
from posttrain.recipes.changes import preference_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.stages import Stage

SHARES = ("0", "0.01", "0.1", "0.25", "0.5", "0.75", "1")
"""Shares of the budget for demonstrations: those of the paper."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Demonstrations and pairs that a budget is spent on."""

    budget: Fraction
    share: Fraction
    """Share of the budget that may be spent on demonstrations."""
    demonstrations: int
    pairs: int
    spent: Fraction
    """At most the budget, and in its unit."""


def split(budget: Fraction, costs: tuple[Fraction, Fraction], share: Fraction) -> Split:
    """The split with so large a share for demonstrations, at the costs of a demonstration and of a pair.

    Raises `UserError` for numbers out of range and for a budget that buys nothing.
    """
    if not (budget > 0 and min(costs) > 0 and 0 <= share <= 1):
        raise UserError(
            f"budget {text_of(budget)}, costs {':'.join(map(text_of, costs))}, share {text_of(share)}: a budget and "
            "costs are above 0, and a share is from 0 to 1"
        )
    demonstrations = share * budget // costs[0]
    pairs = 0 if share == 1 else (budget - demonstrations * costs[0]) // costs[1]
    if not demonstrations and not pairs:
        raise UserError(
            f"a budget of {text_of(budget)} with a share of {text_of(share)} buys nothing at costs of "
            f"{':'.join(map(text_of, costs))}; give a larger budget"
        )
    spent = demonstrations * costs[0] + pairs * costs[1]
    return Split(budget=budget, share=share, demonstrations=demonstrations, pairs=pairs, spent=spent)


def splits(
    budgets: Sequence[Fraction], costs: tuple[Fraction, Fraction], shares: Sequence[Fraction]
) -> Iterator[Split]:
    """The splits of every budget by every share, smallest budget and share first."""
    for budget in sorted(set(budgets)):
        for share in sorted(set(shares)):
            yield split(budget, costs, share)


def recipe_of(recipe: Recipe, chosen: Split) -> Recipe:
    """The recipe on the examples of a split: demonstrations first, pairs of the examples after them.

    Without demonstrations the sft stage is left out, and the pairs are learned from the recipe's initial model, which
    is their reference too; without pairs the preference stage is left out. The recipe has one stage of each type.
    """
    imitation, preference = sft_of(recipe), preference_of(recipe)
    stages: dict[str, Stage] = {}
    for name, stage in recipe.stages.items():
        if stage is imitation and chosen.demonstrations:
            stages[name] = replace(imitation, limit=chosen.demonstrations)
        elif stage is preference and chosen.pairs:
            stages[name] = replace(preference, skip=chosen.demonstrations, limit=chosen.pairs)
        elif stage is not imitation and stage is not preference:
            stages[name] = stage
    return replace(recipe, stages=stages)


def read_number(text: str) -> Fraction:
    """A decimal number as written. Raises `UserError` for other text."""
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise UserError(f"'{text}' is not a number; write 400 or 0.25, for example") from None
    if not number.is_finite() or abs(number.adjusted()) > 12:
        raise UserError(f"'{text}' is out of range; a budget has at most 12 digits")
    return Fraction(number)


def read_numbers(text: str) -> list[Fraction]:
    """Numbers between commas, with or without brackets."""
    return [read_number(part) for part in text.strip("[] ").split(",")]


def read_costs(text: str) -> tuple[Fraction, Fraction]:
    """The costs of a demonstration and of a pair: ``1:3``. Raises `UserError` for other text."""
    parts = text.split(":")
    if len(parts) != 2:
        raise UserError(f"costs={text}: write the cost of a demonstration and that of a pair, costs=1:3")
    return read_number(parts[0]), read_number(parts[1])


def text_of(number: Fraction) -> str:
    """A number in decimal notation."""
    return f"{float(number):g}" if number.denominator > 1 else str(number.numerator)
