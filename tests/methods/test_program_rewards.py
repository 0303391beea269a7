"""ACECode, Think2SQL, VeriReason, VeriPrefer: their values, the reward of demonstrations, and short runs."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.rewards.counted_work import CountedWork
from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.sql import SQL
from posttrain.methods.rewards import acecode as ace
from posttrain.methods.rewards import think2sql as sql
from posttrain.methods.rewards import verireason as veri
from posttrain.methods.rewards.acecode import acecode
from posttrain.methods.rewards.agnostics import agnostics
from posttrain.methods.rewards.think2sql import think2sql
from posttrain.methods.rewards.veriprefer import ROWS as PREFER_ROWS
from posttrain.methods.rewards.veriprefer import veriprefer
from posttrain.methods.rewards.verireason import FORM, verireason
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.settings.arithmetic import arithmetic
from posttrain.signals import logp_of
from tests.components.rewards.judging import attempt as attempted
from tests.components.rewards.judging import judge, score_all
from tests.components.rewards.programs import tier_for

NEEDS = {
    acecode: ("valgrind", "gcc"),
    think2sql: (),
    verireason: ("iverilog", "vvp"),
    veriprefer: ("iverilog", "vvp"),
}
every_recipe = pytest.mark.parametrize("recipe", NEEDS, ids=lambda recipe: recipe.__name__)


def test_rows() -> None:
    assert (ace.ROWS, sql.ROWS, veri.ROWS, PREFER_ROWS) == ((64,), (246,), (83,), (261,))


def test_veriprefer_learns_from_pairs() -> None:
    objective = rl_of(veriprefer()).objective
    assert isinstance(objective, Pairwise) and objective.needs == {logp_of("reference")}


def test_the_language_of_the_programs_is_the_settings() -> None:
    mine = override(arithmetic(), ["reward={kind: io_tests, language: perl, weakest: landlock}"])
    assert rl_of(acecode(mine)).reward == CountedWork(language="perl", weakest="landlock")
    assert rl_of(acecode(arithmetic())).reward == CountedWork()
    assert rl_of(agnostics(mine)).reward == IOTests(language="perl", weakest="landlock", wrong_output=0.2)
    assert acecode(mine).evaluation.verifier == rl_of(mine).reward


def test_the_engine_of_the_queries_is_the_settings() -> None:
    parts = rl_of(think2sql(override(arithmetic(), ["reward={kind: sql, engine: duckdb}"]))).reward.parts  # type: ignore[attr-defined]
    assert parts["rows"] == SQL(engine="duckdb", partial=0.5)


@every_recipe
@pytest.mark.slow
def test_demonstrations_have_the_full_reward(recipe: Callable[[], Recipe]) -> None:
    tier_for(*NEEDS[recipe])
    made = recipe()
    reward = rl_of(made).reward
    full = {acecode: 0.5, think2sql: 1.0, verireason: 2.2, veriprefer: 1.0}[recipe]
    for task in list(made.tasks.load())[:4]:
        score = judge(reward, task.demonstrations[0], task)
        assert score.status == "ok" and score.value >= full - 1e-9, score
        assert recipe is acecode or score.value == pytest.approx(full)


@pytest.mark.slow
def test_a_loop_is_rewarded_less_than_the_closed_form() -> None:
    tier_for("valgrind", "gcc")
    made = acecode()
    task = made.tasks.load()[0]
    a, b = str(task.prompt).removeprefix("C: sum ").strip().split("*i+")
    from posttrain.components.tasks.running_sums import CLOSED, LOOP

    loop, closed, wrong = (text.format(a=a, b=b) for text in (LOOP, CLOSED, CLOSED.replace("+{b}", "-{b}")))
    scores = score_all(rl_of(made).reward, *(attempted(text, task) for text in (loop, closed, wrong, "int main(")))
    values = [score.value for score in scores]
    assert values[1:] == [1.0, -0.3, -1.0] and 0.5 < values[0] < 0.8


def test_the_form_is_what_the_release_searches_for() -> None:
    form = Regex(pattern=FORM, matched=0.1)
    fenced = "<answer>\n```verilog\nmodule\n```\n</answer>"
    for text, value in (
        (f"<think>so</think>\n{fenced}", 0.1),
        (f"Well: <think></think> and {fenced} done", 0.1),
        (fenced, 0.0),
        (f"{fenced}<think>so</think>", 0.0),
        ("<think>so</think><answer>module</answer>", 0.0),
    ):
        assert judge(form, text).value == value, text


@every_recipe
@pytest.mark.slow
def test_it_runs(recipe: Callable[[], Recipe], tmp_path: Path) -> None:
    weakest = tier_for(*NEEDS[recipe])
    steps = {veriprefer: "rl.steps=1"}.get(recipe, "rl.steps=2")
    sizes = ["sft.max_steps=2", "tasks.size=60", "evaluation.holdout=2", "rl.prompts=2", "rl.rollout.n=2", "threads=1"]
    made = override(recipe(), [*sizes, steps, "rl.learner.minibatches=1", "rl.max_grader_errors=0.01"])
    made = replace(made, name="small")
    folder, summary = start(made, tmp_path, LiveView(lines=True))
    assert json.loads((folder / "environment.json").read_text())["sandbox"]["tier"] == weakest
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [entry["stage"] for entry in metrics].count("rl") == int(steps[-1])
    assert all(entry["grader_errors"] == 0.0 for entry in metrics if entry["stage"] == "rl")
    assert summary["sampled_tokens"] > 0
