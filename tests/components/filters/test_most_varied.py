from posttrain.components.filters.most_varied import MostVaried
from tests.builders import group


def kept_keys(keep: float, *rewards: list[float]) -> list[str]:
    groups = [group(r, key="abcdefgh"[i]) for i, r in enumerate(rewards)]
    _, kept, dropped = MostVaried(keep=keep)({}, groups)
    assert {g.key for g in kept} | {d.group.key for d in dropped} == {g.key for g in groups}
    return [g.key for g in kept]


def test_a_quarter_of_eight_is_the_two_that_differ_most_in_their_order() -> None:
    flat = [[0.0, 0.0]] * 5
    assert kept_keys(0.25, [0.0, 0.9], *flat, [0.0, 0.5], [1.0, 0.0]) == ["a", "h"]


def test_it_is_the_std_that_counts_not_the_height() -> None:
    assert kept_keys(0.5, [5.0, 5.0], [-1.0, 0.0]) == ["b"]
    assert kept_keys(0.5, [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]) == ["b"]


def test_at_least_one_and_the_first_of_equals() -> None:
    assert kept_keys(0.25, [1.0, 1.0], [0.0, 0.0]) == ["a"]
    assert kept_keys(0.25, [1.0]) == ["a"]
    assert kept_keys(1.0, [1.0], [0.0, 1.0], [0.0]) == ["a", "b", "c"]


def test_the_reason_is_reported() -> None:
    _, _, (dropped,) = MostVaried(keep=0.5)({}, [group([0.0, 1.0]), group([1.0, 1.0])])
    assert dropped.reason == "not among the 0.5 of the groups whose rewards differ most"
