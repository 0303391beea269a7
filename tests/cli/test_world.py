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
        "random_turns": "its examples",
        "has_solver": True,
        "mean_reward_at_random": 0.0,
        "mean_reward_of_solver": 1.0,
        "survives_faults": True,
        "loses_in_another_process": "nothing: its actions are performed again",
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
    assert "has no solver; --policy legal draws its turns" in capfd.readouterr().err


def test_world_sets_both_stages() -> None:
    tree = to_tree(find_recipe("grpo", ["world=FrozenLake-v1", "view=numbers", "tasks=mine.jsonl"]))
    for environment in (tree["stages"]["rl"]["rollout"]["environment"], tree["stages"]["sft"]["tasks"]["environment"]):
        assert (environment["source"], environment["view"]) == ("FrozenLake-v1", "numbers")
    assert tree["tasks"] == tree["stages"]["sft"]["tasks"]["tasks"]


SHOP = """
class Shop:
    def reset(self, seed: int, wish: str) -> str:
        self.wish, self.bought = wish, []
        return f"wanted: {wish}"
    def buy(self, item: str, n: int = 1) -> str:
        \"\"\"Buy n of an item.\"\"\"
        self.bought += [item] * n
        return f"bought {item}"
    def reward(self) -> float:
        return float(self.wish in self.bought)
"""


@pytest.fixture
def shop(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(SHOP)
    (tmp_path / "wishes.jsonl").write_text('{"wish": "milk"}\n{"wish": "bread"}\n{"wish": "tea"}\n')
    return f"{tmp_path}/mine.py:Shop"


def test_fields_are_those_of_the_tasks_or_stand_ins(
    shop: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["world", "check", shop, "--turns", "12", "--trust-code", "--json"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert found["repeats"] and found["repeats_in_company"] and found["random_turns"] == "its examples"
    assert "stand-ins are given for wish" in err
    tasks = [f"tasks={tmp_path}/wishes.jsonl", "tasks.columns.prompt=null"]
    assert main(["world", "play", shop, *tasks, "--policy", "legal", "--turns", "3", "--seed", "1", "--json"]) == 0
    out, err = capfd.readouterr()
    story = json.loads(out)
    assert story[0].endswith("wanted: bread\n") and "stand-ins" not in err
    assert story[1].startswith('<tool_call>{"name": "buy"') and story[2].strip().startswith("bought")


def test_rows_without_a_prompt_are_refused_with_what_to_write(
    shop: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["world", "check", shop, f"tasks={tmp_path}/wishes.jsonl", "--trust-code"]) == 2
    assert "tasks.columns.prompt=null" in capfd.readouterr().err


def test_settings_of_tasks_hold_for_imitation_too() -> None:
    changes = ["world=FrozenLake-v1", "tasks=mine.jsonl", "tasks.columns.prompt=null"]
    tree = to_tree(find_recipe("grpo", changes))
    assert tree["tasks"]["columns"] == {"prompt": None}
    assert tree["tasks"] == tree["stages"]["sft"]["tasks"]["tasks"]
