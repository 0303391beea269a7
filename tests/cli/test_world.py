"""The verb `world`: what check finds, what play shows; `world=` on the command line."""

import json
from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import to_tree


def said(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capfd.readouterr().out


def test_check_of_a_plain_class(capfd: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capfd, "world", "check", "posttrain.datasets.shop:Shop", "--turns", "4", "--json"))
    assert found.pop("steps_a_second") > 0
    assert found == {
        "episodes": 8,
        "repeats": True,
        "repeats_in_company": True,
        "lists_legal_actions": False,
        "has_solver": True,
        "mean_reward_at_random": 0.0,
        "mean_reward_of_solver": 1.0,
        "survives_faults": True,
    }


def test_a_check_of_a_slow_one_is_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--turns", "2", "--seconds", "0.001", "--json")
    assert json.loads(said(capfd, "world", "check", "posttrain.datasets.shop:Shop", *words))["episodes"] == 2


def test_check_of_a_class_that_does_not_repeat(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "dice.py").write_text(
        "import os\nclass Dice:\n    def reset(self, seed): return os.urandom(4).hex()\n"
        "    def step(self, action): return '1'\n"
    )
    shown = said(capfd, "world", "check", f"{tmp_path}/dice.py:Dice", "--turns", "2", "--trust-code")
    assert "refused unless repeatable=false" in shown


def test_play_by_the_solver(capfd: pytest.CaptureFixture[str]) -> None:
    shown = said(capfd, "world", "play", "posttrain.datasets.shop:Shop", "--policy", "solver")
    assert "> <tool_call>" in shown
    assert "thank you" in shown
    assert "reward 0, the end" in shown and "rewards sum to 1" in shown


def test_what_no_one_can_play_is_played_by_oneself(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["world", "play", "corridor", "--policy", "solver"]) == 2
    assert "has no solver and lists no legal actions" in capfd.readouterr().err


def test_world_sets_both_stages() -> None:
    tree = to_tree(find_recipe("grpo", ["world=FrozenLake-v1", "view=numbers", "tasks=mine.jsonl"]))
    for environment in (tree["stages"]["rl"]["rollout"]["environment"], tree["stages"]["sft"]["tasks"]["environment"]):
        assert (environment["source"], environment["view"]) == ("FrozenLake-v1", "numbers")
    assert tree["tasks"] == tree["stages"]["sft"]["tasks"]["tasks"]
