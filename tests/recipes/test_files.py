import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from posttrain.component.user_code import allowing
from posttrain.errors import Overlap, UserError
from posttrain.methods.credit.gigpo import gigpo
from posttrain.methods.policy_gradient.dr_grpo import dr_grpo
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.klear_reasoner import klear_reasoner
from posttrain.recipes.catalogue import recipe_modules
from posttrain.recipes.files import RENAMED, find_parent, find_recipe, list_recipes, to_yaml, tree_to_yaml
from posttrain.recipes.overrides import from_tree, override, to_tree
from posttrain.recipes.plain_yaml import load_yaml
from posttrain.recipes.tree import Recipe
from posttrain.settings.corridor import corridor
from posttrain.settings.quickstart import quickstart


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: str, text: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return path


def refusal(text: str) -> str:
    with pytest.raises(UserError) as caught:
        find_recipe(text)
    return str(caught.value)


# Names


GROUPS = 16
"""Tests that share the recipes out, of a second or less each."""


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_shipped_recipe_survives_yaml(group: int) -> None:
    """Parts that differ are written and read once: most recipes have most of their parts from others."""
    kept: dict[str, Any] = {}
    for entry in list_recipes()[group::GROUPS]:
        recipe = find_recipe(entry.name)
        tree = to_tree(recipe)
        assert from_tree(tree) == recipe, entry.name
        kept |= {json.dumps(part): part for part in parts_of(tree)}
    numbered = {f"part_{number}": kept[text] for number, text in enumerate(sorted(kept.keys() - READ))}
    read, _ = load_yaml(tree_to_yaml(numbered), "parts of recipes")
    assert numbered and [part for name, part in numbered.items() if read[name] != part] == []
    READ.update(kept)


READ: set[str] = set()
"""Parts that were read in this process, and were right."""


def parts_of(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries of a recipe's tree and of its stages, each with its name."""
    for name, value in tree.items():
        if name != "stages":
            yield {name: value}
    for name, stage in tree["stages"].items():
        yield {name: list(stage)}
        for field, value in stage.items():
            yield {field: value}


@pytest.mark.parametrize("entry", list_recipes()[::10], ids=lambda entry: entry.name)
def test_a_whole_recipe_survives_as_a_file(entry: Any) -> None:
    recipe = find_recipe(entry.name)
    assert find_recipe(write("mine.yaml", to_yaml(recipe))) == recipe


def test_hyphens_and_underscores_are_the_same() -> None:
    assert find_recipe("dr-grpo") == find_recipe("dr_grpo")


def test_changes_are_applied() -> None:
    assert find_recipe("grpo", ["seed=7"]) == replace(grpo(), seed=7)


def test_an_unknown_name_gets_the_nearest() -> None:
    assert refusal("gpro") == "no recipe named 'gpro'; did you mean 'grpo'?"
    assert refusal("judged-sums") == "the recipe 'judged-sums' was renamed: write reward_model_sums"
    assert all(find_recipe(new) and old not in recipe_modules() for old, new in RENAMED.items())


def test_a_name_is_the_recipe_even_if_a_folder_has_the_same_name(here: Path) -> None:
    write("grpo/recipe.yaml", to_yaml(replace(grpo(), seed=7)))
    assert find_recipe("grpo").seed == 0
    assert find_recipe("./grpo").seed == 7


# Functions


def test_a_function_of_a_file() -> None:
    path = write(
        "methods.py",
        "from dataclasses import replace\n"
        "from beside import SEED\n"
        "from posttrain.methods.policy_gradient.grpo import grpo\n"
        "def mine(recipe=grpo()):\n"
        "    return replace(recipe, seed=SEED)\n",
    )
    write("beside.py", "SEED = 5\n")
    assert find_recipe(f"{path}:mine") == replace(grpo(), seed=5)


def test_a_function_of_a_module() -> None:
    assert find_recipe("posttrain.methods.policy_gradient.grpo:grpo") == grpo()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def g(): pass", "methods.py has no function 'f'; known: g"),
        (
            "def f(recipe): return recipe",
            "methods.py:f has no default for 'recipe', so there is no recipe to start from",
        ),
        ("def f(): return 3", "methods.py:f returned int; a recipe function returns a Recipe"),
        ("def f():\n    return 1 / 0", "methods.py line 2: ZeroDivisionError: division by zero"),
        ("import nowhere_to_be_found", "methods.py line 1: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("x = 3\ndef f(:", "methods.py line 2: SyntaxError: "),
        (
            "def f():\n  from posttrain.components.objectives.ppo_clip import PPOClip\n  return PPOClip(clip_lo=0.1)",
            "methods.py line 3: PPOClip has no field 'clip_lo'; did you mean 'clip_low'?",
        ),
        (
            "def f():\n    from posttrain.recipes.files import find_recipe\n    return find_recipe('grpo', ['sed=3'])",
            "methods.py line 3: no field 'sed' in this recipe",
        ),
    ],
)
def test_a_wrong_function_is_explained_with_its_line(body: str, message: str) -> None:
    assert message in refusal(write("methods.py", body) + ":f")


def test_a_file_without_a_function_and_a_missing_file() -> None:
    write("methods.py", "")
    assert refusal("methods.py") == "which function of methods.py? Write methods.py:NAME"
    assert "no file method.py" in refusal("method.py:f") and "did you mean 'methods.py'?" in refusal("method.py:f")


def test_a_module_that_is_not_there() -> None:
    assert "no module 'nowhere.at_all' on the import path" in refusal("nowhere.at_all:f")


# Methods on settings


def test_a_method_is_put_on_another_setting() -> None:
    mine = write("mine.yaml", "base: corridor\nseed: 7\nrl.steps: 500\n")
    recipe = override(corridor(), ["seed=7", "rl.steps=500"])
    assert find_recipe("gigpo", [f"setting={mine}", "threads=1"]) == override(gigpo(recipe), ["threads=1"])
    assert find_recipe("gigpo") == gigpo(corridor())
    write("runs/mine-1/recipe.yaml", to_yaml(recipe))
    assert find_recipe("gigpo", ["setting=runs/mine-1"]) == gigpo(recipe)
    assert find_recipe("gigpo", ["setting=quickstart"]).name == "gigpo"


def test_a_setting_is_named_in_a_file_and_relative_to_it() -> None:
    write("deep/own.yaml", "base: corridor\nseed: 7\n")
    path = write("deep/mine.yaml", "base: gigpo\nsetting: own.yaml\nrl.steps: 3\n")
    assert find_recipe(path) == override(gigpo(override(corridor(), ["seed=7"])), ["rl.steps=3"])


def test_a_function_of_ones_own_is_a_method_or_a_setting() -> None:
    path = write(
        "own.py",
        "from dataclasses import replace\n"
        "from posttrain.settings.corridor import corridor\n"
        "def world(): return replace(corridor(), seed=7)\n"
        "def seeded(recipe): return replace(recipe, name='seeded', seed=recipe.seed + 1)\n"
        "def wrong(recipe): return recipe.tasks\n",
    )
    assert find_recipe("gigpo", [f"setting={path}:world"]).seed == 7
    assert find_recipe(f"{path}:seeded", ["setting=corridor"]) == replace(corridor(), name="seeded", seed=1)
    both = find_recipe(f"gigpo+{path}:seeded", [f"setting={path}:world"])
    assert (both.name, both.seed) == ("gigpo+seeded", 8)
    with pytest.raises(UserError, match=r"own.py:wrong returned Corridor; a recipe function returns a Recipe"):
        find_recipe(f"{path}:wrong", ["setting=corridor"])
    with pytest.raises(UserError, match=r"'own.py:world' is a function that takes no recipe; a method is"):
        find_recipe(f"{path}:world", ["setting=corridor"])


def test_methods_are_put_on_one_another() -> None:
    found = find_recipe("dr-grpo+klear_reasoner")
    assert found == replace(klear_reasoner(dr_grpo()), name="dr_grpo+klear_reasoner")
    run = write("runs/dr_grpo+gigpo-1/recipe.yaml", to_yaml(grpo()))
    assert find_recipe(str(Path(run).parent)) == grpo()


def test_a_later_method_warns_of_what_it_changes_again() -> None:
    with pytest.warns(
        Overlap, match="^gigpo changes what lite_ppo had changed: advantage  {kind: group_mean, .*-> gigpo"
    ):
        find_recipe("lite_ppo+gigpo", ["setting=corridor"])


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("corridor", ["setting=grpo"], "'corridor' is a setting, a complete recipe; a method is what is put on"),
        ("gigpo+corridor", ["setting=grpo"], "'corridor' is a setting"),
        ("mine.yaml", ["setting=grpo"], "'mine.yaml' is a recipe file; a method is"),
        ("runs", ["setting=grpo"], "'runs' is a folder; a method is"),
        ("gigppo", ["setting=grpo"], "no method named 'gigppo'; did you mean 'gigpo'?"),
        ("gigpo", ["setting=coridor"], "no recipe named 'coridor'; did you mean 'corridor'?"),
        ("gigpo", ["setting=grpo", "setting=ppo"], "there is one setting for a recipe, got grpo, ppo"),
        ("gigpo+dr_grpo", [], "which setting for gigpo+dr_grpo? Their own are: gigpo corridor, dr_grpo arithmetic."),
        ("lone.yaml", [], "lone.yaml line 1: a setting is for the method in base; this file has no base"),
        ("list.yaml", [], "list.yaml line 2: setting is the name of a recipe or a path, got ['grpo']"),
    ],
)
def test_what_is_no_method_is_refused(text: str, changes: list[str], message: str) -> None:
    write("mine.yaml", "base: grpo\n")
    write("lone.yaml", "setting: grpo\nname: x\n")
    write("list.yaml", "base: gigpo\nsetting: [grpo]\n")
    write("runs/x", "")
    with pytest.raises(UserError) as caught:
        find_recipe(text, changes)
    assert message in str(caught.value)


def test_the_parent_is_on_the_same_setting() -> None:
    assert find_parent("gigpo") == ("grpo", grpo(corridor()))
    assert find_parent("gigpo", ["setting=quickstart", "seed=3"]) == ("grpo", replace(grpo(quickstart()), seed=3))
    for name, why in (
        ("grpo", "is a root"),
        ("corridor", "is no shipped method"),
        ("mine.yaml", "is no shipped method"),
    ):
        with pytest.raises(UserError, match=f"'{name}' {why}"):
            find_parent(name)


# YAML


def test_changes_are_nested_or_dotted_and_spelled_as_on_the_command_line() -> None:
    path = write("mine.yaml", "base: grpo\nrollout:\n  n: 4\nobjective.clip_high: 0.28\nrl.steps: 7\nlr: 0.5\n")
    expected = ["rollout.n=4", "objective.clip_high=0.28", "rl.steps=7", "lr=0.5"]
    assert find_recipe(path) == override(grpo(), expected)


def test_numbers_are_read_as_on_the_command_line() -> None:
    assert find_recipe(write("mine.yaml", "base: grpo\nlr: 1e-4\n")) == override(grpo(), ["lr=1e-4"])


@pytest.mark.parametrize(
    "text",
    [
        "reward: {kind: format, tags: [think]}",
        "reward: {tags: [think], kind: format}",
        "reward.tags: [think]\nreward.kind: format",
        "reward.kind: format\nreward:\n  tags: [think]",
    ],
)
def test_a_new_kind_replaces_the_settings_of_the_old_one_in_any_order(text: str) -> None:
    assert find_recipe(write("mine.yaml", f"base: grpo\n{text}\n")) == override(
        grpo(), ["reward={kind: format, tags: [think]}"]
    )


def test_a_mapping_of_the_same_kind_keeps_the_other_settings() -> None:
    first = write("first.yaml", "base: grpo\nobjective.clip_high: 0.28\n")
    second = write("second.yaml", f"base: {first}\nobjective: {{kind: ppo_clip, clip_low: 0.1}}\n")
    assert find_recipe(second) == override(grpo(), ["objective.clip_high=0.28", "objective.clip_low=0.1"])


def test_what_is_new_is_added_whole() -> None:
    text = "base: grpo\nmodels:\n  reference:\n    source: role:policy\npenalties: {kl: {kind: kl, coefficient: 0.5}}\n"
    expected = ["models.reference={source: 'role:policy'}", "penalties.kl={kind: kl, coefficient: 0.5}"]
    assert find_recipe(write("mine.yaml", text)) == override(grpo(), expected)


def test_text_for_a_component_can_be_refined() -> None:
    found = find_recipe(write("mine.yaml", "base: grpo\ntasks: arithmetic\ntasks.size: 3\n"))
    assert found == override(grpo(), ["tasks=arithmetic", "tasks.size=3"])


def test_a_base_is_a_path_relative_to_its_file_and_data_is_not(here: Path) -> None:
    write("settings/base.yaml", "base: grpo\nseed: 7\n")
    write(
        "settings/methods.py", "from posttrain.methods.policy_gradient.grpo import grpo\ndef f():\n    return grpo()\n"
    )
    by_yaml = find_recipe(write("settings/a.yaml", "base: base.yaml\ntasks: mine.jsonl\n"))
    assert by_yaml == override(grpo(), ["seed=7", "tasks=mine.jsonl"])
    by_function = write("settings/b.yaml", "base: methods.py:f\n")
    assert "settings/b.yaml names code that was neither" in refusal(by_function)
    with allowing(trust=True):
        assert find_recipe(by_function) == grpo()
    assert find_recipe(by_function) == grpo(), "consent is remembered"


def test_the_folder_of_a_run() -> None:
    recipe = replace(grpo(), seed=7)
    write("runs/grpo-3/recipe.yaml", to_yaml(recipe))
    assert find_recipe("runs/grpo-3") == recipe
    assert find_recipe(write("mine.yaml", "base: runs/grpo-3\nseed: 8\n")) == replace(grpo(), seed=8)
    Path("runs/empty").mkdir()
    assert refusal("runs/empty") == "runs/empty is not the folder of a run: it has no recipe.yaml"
    assert refusal("runs/none").startswith("no folder runs/none (working in ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: grpo\nrollout:\n  m: 4\n", "rollout (mine.yaml line 3): Independent has no field 'm'"),
        (
            "base: grpo\n\nstepz: 4\n",
            "mine.yaml line 3: no field 'stepz' in this recipe or its stages (rl); did you mean 'steps'?",
        ),
        ("base: grpo\nseed: -1\n", "seed (mine.yaml line 2): Input should be greater than or equal to 0"),
        (
            "base: grpo\nobjective:\n  kind: ppo_clop\n",
            "(mine.yaml line 2): no objective named 'ppo_clop'; did you mean 'ppo_clip'?",
        ),
        ("base: grpo\nseed: 1\nseed: 2\n", 'mine.yaml line 3: found duplicate key "seed"'),
        ("base: grpo\nrollout: {n: 4\n", "mine.yaml line 3: "),
        ("base: gpro\n", "no recipe named 'gpro'; did you mean 'grpo'?"),
        ("base: [grpo]\n", "mine.yaml line 1: base is the name of a recipe or a path, got ['grpo']"),
        ("base: mine.yaml\n", "mine.yaml is its own base: mine.yaml -> mine.yaml"),
        ("seed: 3\n", "mine.yaml has no name, models, tasks, stages and no base."),
        ("", "mine.yaml holds nothing; a recipe is a mapping"),
        ("- grpo\n", "mine.yaml holds ['grpo']; a recipe is a mapping"),
    ],
)
def test_a_wrong_file_is_explained_with_its_line(text: str, message: str) -> None:
    assert message in refusal(write("mine.yaml", text))


def test_a_mistake_in_a_whole_recipe_has_its_line() -> None:
    text = to_yaml(grpo()).replace("clip_low:", "clip_lo:")
    line = next(i for i, found in enumerate(text.splitlines(), 1) if "clip_lo:" in found)
    assert f"(mine.yaml line {line}): PPOClip has no field 'clip_lo'; did you mean 'clip_low'?" in refusal(
        write("mine.yaml", text)
    )


def test_a_missing_file_names_the_nearest(here: Path) -> None:
    write("mine.yaml", "base: grpo\n")
    assert refusal("mina.yaml") == f"no file mina.yaml (working in {here}); did you mean 'mine.yaml'?"
    assert refusal("nowhere/x.yaml") == f"no file nowhere/x.yaml (working in {here})"


def test_a_file_that_is_not_text() -> None:
    Path("mine.yaml").write_bytes(b"\xff\xfe\x00")
    assert "mine.yaml is not UTF-8 text" in refusal("mine.yaml")


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
trees = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner), max_leaves=12)


@example({"stop": ["?0", "\x85", "a: b", "- x", "0 1", "1e3", "true", "", " ", "0000\x1f\x1f\x1f 0" * 20]})
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.dictionaries(st.text(min_size=1), trees, max_size=4))
@pytest.mark.slow
def test_everything_that_a_tree_can_hold_survives_yaml(tree: dict[str, Any]) -> None:
    assert YAML(typ="safe", pure=True).load(tree_to_yaml(tree)) == tree


def test_yaml_keeps_the_order_of_stages() -> None:
    first = find_recipe("sft")
    both = Recipe(**{**vars(first), "stages": {"z": first.stages["sft"], "a": first.stages["sft"]}})
    assert list(find_recipe(write("mine.yaml", to_yaml(both))).stages) == ["z", "a"]
    assert to_tree(both)["stages"].keys() == {"z", "a"}


@pytest.mark.parametrize("key", ["null", "~", "? [a, b]\n", "? {a: b}\n"])
@pytest.mark.parametrize("above", ["", "tasks:\n  "])
def test_keys_are_text(here: Path, key: str, above: str) -> None:
    path = write("mine.yaml", f"base: grpo\n{above}{key}: 1\n")
    assert "a key must be text" in refusal(path) or "mine.yaml line" in refusal(path)


def test_a_link_to_itself_is_no_recipe(here: Path) -> None:
    Path("loop.yaml").symlink_to("loop.yaml")
    assert refusal("loop.yaml").startswith("loop.yaml cannot be opened: ")
    assert "no file" in refusal("none.yaml")


@pytest.mark.parametrize("name", ["", "x" * 201, "\ud800"])
def test_a_name_can_name_a_folder(name: str) -> None:
    tree = to_tree(grpo())
    with pytest.raises(UserError, match="name"):
        from_tree({**tree, "name": name})
