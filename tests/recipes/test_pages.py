"""Pages of methods and families: what they say is what the modules say, in Markdown that reads as it was written."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from posttrain.components.advantages.gigpo import GiGPO
from posttrain.components.penalties.kl import KL
from posttrain.errors import UserError
from posttrain.recipes.differences import differences
from posttrain.recipes.pages import experiments, family_page, method_page, settings_page
from posttrain.recipes.pages.markdown import (
    inline,
    markdown,
    paragraphs,
    section_of,
    source,
    table,
    without_local_links,
    without_section,
)
from posttrain.recipes.pages.parts import changes_of, listed, parts_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

DOCSTRING = """Sums: of a * b and <image>, with ``x_1``.

Source: A. Person 2025, arXiv:2501.00001, equation 2: every token
gets

    A = r - b
      + c

where b is a baseline. A list:

- one
  item
- two

Differs: nothing
known.
"""

ROOT = Path(__file__).parents[2]


def test_a_docstring_becomes_markdown() -> None:
    assert markdown(DOCSTRING).split("\n\n") == [
        r"Sums: of a \* b and &lt;image>, with `x_1`.",
        "Source: A. Person 2025, [arXiv:2501.00001](https://arxiv.org/abs/2501.00001), equation 2: every token gets",
        "```text\nA = r - b\n  + c\n```",
        "where b is a baseline. A list:",
        "- one item\n- two",
        "Differs: nothing known.",
    ]
    assert [section_of(text) for text in paragraphs(DOCSTRING)] == ["Sums", "Source", "", "", "", "Differs"]
    assert without_section("Differs: nothing\nknown.") == "Nothing\nknown."


def test_a_block_of_code_may_follow_its_sentence_without_a_line_between() -> None:
    assert markdown("Run it:\n    posttrain run x\nor not.") == "Run it: posttrain run x or not."
    found = markdown("First.\n\nRun it:\n    posttrain run x\n\nLast.").split("\n\n")
    assert found == ["First.", "Run it:", "```text\nposttrain run x\n```", "Last."]


def test_tables_and_sources() -> None:
    assert table(("a", "b"), [("1|2", "x\ny")]) == "| a | b |\n| --- | --- |\n| 1\\|2 | x y |"
    assert table(("a",), []) == ""
    assert source("https://example.org/x") == "<https://example.org/x>" and source("A 2020") == "A 2020"
    assert inline("`a*b` a*b") == r"`a*b` a\*b"
    assert without_local_links("[a](b.md#c) [d](https://e.org) ![f](g.svg)") == "a [d](https://e.org) ![f](g.svg)"


def test_parts_are_what_a_difference_sets() -> None:
    recipe = arithmetic()
    stage = recipe.stages["rl"]
    changed = replace(stage, advantage=GiGPO(omega=0.5), penalties={"kl": KL(coefficient=0.1)}, steps=7)  # type: ignore[call-arg]
    after: Recipe = replace(recipe, stages={"rl": changed})
    parts = {part.path: part for part in parts_of(differences(recipe, after), after)}
    assert set(parts) == {"advantage", "penalties.kl", ""} and parts[""].fields == ("steps",)
    assert parts["advantage"].family == "advantage" and parts[""].family == "stage"
    numbers = {path: value for part in parts.values() for path, value, _ in part.numbers()}
    assert numbers["advantage.omega"] == "0.5" and numbers["penalties.kl.coefficient"] == "0.1"
    assert numbers["steps"] == "7" and "advantage.gamma" in numbers


@pytest.mark.slow
def test_the_page_of_a_method_has_all_that_is_known_of_it() -> None:
    page = method_page("gigpo")
    assert page.startswith("# gigpo\n\nGiGPO: ")
    assert "[arXiv:2505.10978](https://arxiv.org/abs/2505.10978)" in page
    assert "In [`grpo`](../policy_gradient/grpo.md), on the setting `corridor`:" in page
    assert "~ advantage              group_mean -> gigpo\n" in page
    assert "### Advantage: [`gigpo`](../../components/advantages.md#gigpo)" in page
    assert "  + omega N(G_t, among" in page, "the formula, as it stands in the advantage"
    assert "| `advantage.gamma` | `0.95` | Discount per turn" in page
    assert "Inherited from `grpo`" in page and "KL loss with weight 0.01" in page
    assert "posttrain run gigpo setting=mine.yaml" in page
    assert "![" not in page and "gigpo.svg)" in method_page("gigpo", pictures=True)


def test_a_root_has_its_formulas_and_one_line_for_own_data() -> None:
    page = method_page("grpo")
    assert "It is a root" in page and "### Objective: [`ppo_clip`]" in page and "### Reducer: [`tokens`]" in page
    assert "posttrain run grpo tasks=mine.jsonl model=path/to/model reward=./mine.py:score" in page


def test_every_difference_of_a_method_is_on_its_page() -> None:
    for name in ("dr_grpo", "gigpo"):
        entry = next(entry for entry in listed("recipe") if entry.name == name)
        found, _ = changes_of(entry)
        page = method_page(name)
        assert found and all(difference.path in page and difference.text in page for difference in found)


def test_what_is_no_method_has_no_page() -> None:
    with pytest.raises(UserError, match=r"no method named 'gigpoo'.*did you mean 'gigpo'"):
        method_page("gigpoo")


def test_the_page_of_a_family_has_every_member_with_its_settings() -> None:
    page = family_page("reducer")
    for entry in listed("reducer"):
        assert f"[`{entry.name}`](#{entry.name})" in page and f"\n## {entry.name}\n" in page
    assert "| `length` | `1024.0` | The constant, in tokens" in page
    assert "| `path` | required | " in family_page("tasks")
    settings = settings_page()
    assert all(f"\n## {entry.name}\n" in settings for entry in listed("setting"))


def test_an_experiment_is_a_sentence_a_table_and_its_command(tmp_path: Path) -> None:
    spread = {"mean": 0.5, "interval": [0.4, 0.6], "values": [0.4, 0.6]}
    more = spread | {"difference": {"value": 0.25, "interval": [0.05, 0.45]}}
    rows = [
        {"contender": "a", "seeds": [0, 1], "acc": spread, "sampled_tokens": spread},
        {"contender": "b x=1", "seeds": [0, 1], "acc": more, "sampled_tokens": None},
    ]
    text = (
        '{"title": "A and B", "rows": [7], "said": "Small.", "command": "posttrain compare a b", "measures": ["acc"]}'
    )
    (tmp_path / "ab.json").write_text(text)
    [read] = experiments.all_experiments(tmp_path)
    assert (read.name, read.rows, read.contenders, read.has_curves) == ("ab", (7,), (), False)
    found = replace(read, contenders=tuple(rows))
    heading, said, picture, outcome, command = experiments.section(found, level=3, pictures="pictures")
    assert (heading, said, command) == ("### A and B", "Small.", "```text\nposttrain compare a b\n```")
    assert picture == "![A and B: seeds, mean, 95 % interval](pictures/ab.svg)"
    assert outcome.splitlines()[2:] == [
        "| `a` | 2 | 0.5 [0.4, 0.6] | 0.5 [0.4, 0.6] |",
        "| `b x=1` | 2 | 0.5 [0.4, 0.6]; **+0.25 [+0.05, +0.45]** |  |",
    ]
    assert len(list(experiments.section(found, level=3))) == 4, "a terminal shows no picture"
    assert experiments.all_experiments(tmp_path / "nowhere") == ()


def script(name: str) -> ModuleType:
    """A script of docs/experiments, which is no part of the package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/experiments/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_experiment_may_have_a_table_of_held_out_episodes(tmp_path: Path) -> None:
    """Means and Student's intervals by hand: of 0 and 1 it is .5 -+ 12.706 x .5."""
    seeds = [{"success": 0.0, "turns": 3.0, "calls": None}, {"success": 1.0, "turns": 3.0, "calls": 2.0}]
    line = script("episodes").episode_row("A", seeds)
    assert line == ["A", "0.50 [-5.85, 6.85]", "3.00 [3.00, 3.00]", "-", "-", "-"]
    own = {"said": "No optimum is known.", "table": [line], "command": "python b.py"}
    measured = {"title": "A", "rows": [7], "command": "python a.py", "columns": ["x"], "table": [["1"]]}
    (tmp_path / "a.json").write_text(json.dumps({**measured, "episodes": own}))
    (tmp_path / "b.json").write_text(json.dumps(measured))
    with_episodes, without = experiments.all_experiments(tmp_path)
    blocks = list(experiments.section(with_episodes, level=2))
    assert blocks[-3] == own["said"] and blocks[-1] == "```text\npython b.py\n```"
    assert blocks[-2].splitlines()[0] == "| held-out episodes | success | turns | calls | tokens | regret |"
    assert blocks[-2].splitlines()[2] == f"| {' | '.join(line)} |"
    assert blocks[:-3] == list(experiments.section(without, level=2))
