from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.differences import Difference, differences, spell
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import override, parse_value
from posttrain.recipes.tree import Recipe


def lines(*changes: str, base: Recipe | None = None) -> list[tuple[str, str, str]]:
    base = base or grpo()
    return [(d.path, d.change, d.text) for d in differences(base, override(base, changes))]


def test_equal_recipes_have_no_differences_and_names_do_not_count() -> None:
    assert differences(grpo(), replace(grpo(), name="other")) == []


def test_a_setting_is_spelled_as_on_the_command_line() -> None:
    assert lines("objective.clip_high=0.28", "seed=3") == [
        ("objective.clip_high", "changed", "0.2 -> 0.28"),
        ("seed", "changed", "0 -> 3"),
    ]


def test_another_kind_is_one_line_without_the_settings_at_their_defaults() -> None:
    assert lines("reward={kind: format, tags: [think]}") == [
        ("reward", "changed", "match -> {kind: format, tags: [think]}")
    ]
    assert lines("reward={kind: sum, parts: {a: match}}") == [
        ("reward", "changed", "match -> {kind: sum, parts: {a: match}}")
    ]


def test_what_only_one_has_is_added_or_removed() -> None:
    change = "models.reference.source=role:policy"
    assert lines(change) == [("models.reference", "added", "{source: role:policy}")]
    changed = override(grpo(), [change])
    [back] = differences(changed, grpo())
    assert (back.path, back.change, back.after, back.text) == (
        "models.reference",
        "removed",
        None,
        "{source: role:policy}",
    )
    assert back.before["trained"] is False


def test_a_value_in_place_of_none() -> None:
    assert lines("models.policy.lora.rank=4") == [("models.policy.lora", "changed", "null -> {rank: 4}")]


def test_lists_of_scalars_are_compared_whole() -> None:
    assert lines("rollout.sampling.stop=[a, '; ']") == [("rollout.sampling.stop", "changed", '[] -> [a, "; "]')]


def test_a_path_that_is_in_two_stages_is_spelled_with_its_stage() -> None:
    stage = grpo().stages["rl"]
    twice = replace(grpo(), stages={"first": stage, "second": stage})
    assert lines("second.steps=3", base=twice) == [("second.steps", "changed", "100 -> 3")]


def test_the_order_of_stages_is_a_difference() -> None:
    stages = {"a": find_recipe("sft").stages["sft"], "b": grpo().stages["rl"]}
    one, other = replace(grpo(), stages=stages), replace(grpo(), stages=dict(reversed(stages.items())))
    assert differences(one, other) == [
        Difference(
            path="stages",
            keys=("stages",),
            change="changed",
            before=["a", "b"],
            after=["b", "a"],
            text="[a, b] -> [b, a]",
        )
    ]


@pytest.mark.parametrize("a", ["grpo", "dr_grpo", "ppo", "rloo"])
@pytest.mark.parametrize("b", ["grpo", "ppo", "rloo"])
def test_applying_the_differences_gives_the_other_recipe(a: str, b: str) -> None:
    """Every line is an override, removals aside: those have no spelling on the command line."""
    first, second = find_recipe(a), find_recipe(b)
    found = differences(first, second)
    changes = [f"{d.path}={d.text.split(' -> ')[-1]}" for d in found if d.change != "removed"]
    assert [d.change for d in differences(override(first, changes), second)] == ["removed"] * sum(
        d.change == "removed" for d in found
    )


@example('a, "b\\')
@example("0x1F")
@example("{{ sample.output_text }}")
@settings(derandomize=True)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_a_spelled_value_is_read_back(value: Any) -> None:
    assert parse_value(f"[{spell(value)}]") == [value]
    assert "\n" not in spell(value)
