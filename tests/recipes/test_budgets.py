"""Splits of a budget: counts by hand, never more than the budget, and the recipe of each split."""

from fractions import Fraction
from itertools import product

import pytest

from posttrain.errors import UserError
from posttrain.methods.preference.dpo import dpo
from posttrain.methods.preference.sft_dpo import sft_dpo
from posttrain.recipes.budgets import SHARES, Split, read_costs, read_number, read_numbers, recipe_of, split, splits
from posttrain.recipes.changes import preference_of, sft_of
from posttrain.settings.tagged_pairs import tagged_pairs


def counts(budget: str, costs: str, share: str) -> tuple[int, int, Fraction]:
    found = split(read_number(budget), read_costs(costs), read_number(share))
    return found.demonstrations, found.pairs, found.spent


@pytest.mark.parametrize(
    ("budget", "costs", "share", "expected"),
    [
        ("2000", "1:3", "0", (0, 666, 1998)),
        ("2000", "1:3", "0.1", (200, 600, 2000)),
        ("2000", "1:3", "1", (2000, 0, 2000)),
        ("2000", "3:1", "1", (666, 0, 1998)),  # what is left would buy pairs, but share 1 has no second stage
        ("100", "3:1", "0.5", (16, 52, 100)),  # what demonstrations cannot use goes to pairs
        ("30", "1:1", "0.01", (0, 30, 30)),  # no demonstration: share 0
        ("10", "0.1:0.3", "0.7", (70, 10, 10)),  # exact in decimals
    ],
)
def test_counts_by_hand(budget: str, costs: str, share: str, expected: tuple[int, int, int]) -> None:
    assert counts(budget, costs, share) == expected


def test_no_split_overspends_and_none_leaves_what_would_buy_one_more() -> None:
    for budget, first, second, share in product(("7", "99.9", "1600"), ("0.7", "1", "3"), ("0.3", "2"), SHARES):
        costs = read_number(first), read_number(second)
        found = split(read_number(budget), costs, read_number(share))
        assert found.spent == found.demonstrations * costs[0] + found.pairs * costs[1] <= found.budget
        if share != "1":
            assert found.budget - found.spent < costs[1]


def test_splits_go_through_budgets_and_shares_in_order() -> None:
    found = list(splits(read_numbers("400,100"), (Fraction(1), Fraction(1)), read_numbers("[1, 0, 1]")))
    assert [(one.demonstrations, one.pairs) for one in found] == [(0, 100), (100, 0), (0, 400), (400, 0)]


@pytest.mark.parametrize(
    ("budget", "costs", "share", "message"),
    [
        ("-1", "1:1", "0.5", "budget -1, costs 1:1, share 0.5: a budget and costs are above 0"),
        ("10", "0:1", "0.5", "costs are above 0"),
        ("10", "1:1", "1.5", "a share is from 0 to 1"),
        ("2", "3:3", "0.5", "a budget of 2 with a share of 0.5 buys nothing at costs of 3:3"),
        ("many", "1:1", "0", "'many' is not a number"),
        ("1e99", "1:1", "0", "'1e99' is out of range"),
        ("10", "1", "0", "costs=1: write the cost of a demonstration and that of a pair"),
    ],
)
def test_mistakes(budget: str, costs: str, share: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        counts(budget, costs, share)


def chosen(demonstrations: int, pairs: int) -> Split:
    return Split(budget=Fraction(10), share=Fraction(0), demonstrations=demonstrations, pairs=pairs, spent=Fraction(10))


def test_recipes_of_splits() -> None:
    """A share of 0 is DPO on the initial model, with it as the reference; a share of 1 has no second stage."""
    both = recipe_of(sft_dpo(), chosen(4, 6))
    assert (sft_of(both).skip, sft_of(both).limit) == (0, 4)
    assert (preference_of(both).skip, preference_of(both).limit) == (4, 6)
    pairs = recipe_of(sft_dpo(), chosen(0, 10))
    assert list(pairs.stages) == ["dpo"] and pairs.models == dpo(tagged_pairs()).models
    assert pairs.models["reference"].source == "role:policy" and preference_of(pairs).skip == 0
    assert list(recipe_of(sft_dpo(), chosen(10, 0)).stages) == ["sft"]


def test_a_split_uses_different_examples_in_its_stages() -> None:
    recipe = recipe_of(sft_dpo(), chosen(4, 6))
    tasks = recipe.tasks.load()
    shown = [task.key for task, _ in sft_of(recipe).pairs(tasks)]
    pairs = [task.key for task, _ in preference_of(recipe)._training.pairs(tasks)]
    assert shown == [task.key for task in tasks[:4]] and pairs == [task.key for task in tasks[4:10]]
    with pytest.raises(UserError, match="skip=4 leaves none of the 3 pairs; give a smaller skip"):
        preference_of(recipe)._training.pairs(tasks[:3])
