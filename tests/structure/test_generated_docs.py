"""What docs/ makes out of measurements and of a run: pages are up to date, the picture shows the run."""

import importlib.util
import json
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

from posttrain.components.diagnostics import Diagnostic
from posttrain.recipes.budgets import read_costs, read_numbers, recipe_of, splits
from posttrain.recipes.files import find_recipe
from posttrain.recipes.pages.experiments import all_experiments
from posttrain.runs.comparison import contenders_of
from posttrain.runs.store import RunStore
from posttrain.runs.summary import write_summary
from tests.runs.made_runs import make_run

DOCS = Path(__file__).resolve().parents[2] / "docs"


def script(name: str) -> ModuleType:
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.path.append(str(DOCS))  # where a script that is run finds the modules beside it
NAMES = ("pictures", "trust", "performance", "real_model", "two_families", "stages", "scale", "rewards")
pictures, trust, performance, real_model, two_families, stages, scale, rewards = map(script, NAMES)


def test_the_picture_is_the_run_as_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, sft=3, rl=4)
    monkeypatch.setattr(pictures, "PICTURE", tmp_path / "run.svg")
    assert pictures.main([str(run)]) == 0
    svg = (tmp_path / "run.svg").read_text()
    shown = " ".join("".join(ET.fromstring(svg).itertext()).replace("\xa0", " ").split())
    assert "posttrain run quickstart" in shown and "rl 4/4 stage 2 of 2" in shown
    assert re.search(r"held-out ?\d+\.\d % \[\d+\.\d, \d+\.\d\].* began at \d", shown)
    assert not re.search(r"(url|href)\W+https?:", svg), "a picture that asks the network for something"
    assert pictures.draw(run) == svg, "drawing takes no time that shows"


def test_a_folder_without_a_run_has_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pictures.main([str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err
    assert pictures.main([]) == 2


def test_the_page_of_stages_is_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert stages.main(["--check"]) == 0, capsys.readouterr().err


def test_the_page_of_clusters_is_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert scale.main(["--check"]) == 0, capsys.readouterr().err


def test_the_page_of_rewards_is_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert rewards.main(["--check"]) == 0, capsys.readouterr().err


def test_a_run_becomes_a_table_of_its_stages(tmp_path: Path) -> None:
    name, found = stages.record([make_run(tmp_path, sft=3, rl=4, tasks=20)])
    lines = list(stages.section(name, found))
    assert lines[0] == "## quickstart" and "| kind | tasks | before | sft | rl |" in lines
    change = {"value": 0.5, "gained": 12, "lost": 2, "interval": [0.1, 0.7]}
    assert stages.cell({"accuracy": 0.75, "change": change}) == "75.0 % (**+12 -2**)"
    assert stages.cell({"accuracy": 0.75, "change": {**change, "interval": [-0.1, 0.7]}}) == "75.0 % (+12 -2)"
    assert stages.cell({"accuracy": 0.75}) == "75.0 %"


def test_the_page_of_a_real_model_is_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert real_model.main(["--check"]) == 0, capsys.readouterr().err


def test_a_trial_becomes_a_row_without_its_time(tmp_path: Path) -> None:
    run = make_run(tmp_path, sft=0, rl=4, tasks=12)
    with RunStore.open(run) as store:
        write_summary(store)
    kept = real_model.trial(run)
    assert len(kept["answers"]) == real_model.COMPARED and "seconds" not in kept
    tasks = {"kind": "reasoning_gym", "name": "chain_sum", "system": "Be brief."}
    row = real_model.tried({**kept, "recipe": {"tasks": tasks}})
    assert row[:2] == ["`chain_sum`", "`Be brief.`"] and "points [" in row[4]
    assert row[5:7] == ["4", f"{100 - 25 * sum(m['zero_variance'] for m in kept['metrics']):.0f} %"]


def test_a_run_becomes_a_row_with_answers_before_and_after(tmp_path: Path) -> None:
    run = make_run(tmp_path, sft=0, rl=4, tasks=12)
    with RunStore.open(run) as store:
        write_summary(store)
    kept = real_model.record(run)
    assert [entry["step"] for entry in kept["metrics"]] == [1, 2, 3, 4]
    assert len(kept["answers"]) == real_model.COMPARED
    assert kept["evaluations"][0]["accuracy"] == kept["accuracy_before"]
    row = real_model.numbers("x", kept)
    assert row[0] == "`x`" and row[4] == "4" and row[3].endswith("]")
    assert ET.fromstring(real_model.picture({"x": kept})).tag.endswith("svg")


def test_the_picture_of_two_families_is_drawn_from_the_comparison() -> None:
    found = json.loads(two_families.MEASURED.read_text())
    drawn = two_families.draw(found)
    assert drawn == two_families.PICTURE.read_text(), "run: python docs/two_families.py"
    shown = " ".join(ET.fromstring(drawn).itertext())
    assert all(two_families.name_of(row["contender"]) in shown for row in found["contenders"])
    base, after = found["contenders"][:2]
    lost = 100 * (base[two_families.SUMS]["mean"] - after[two_families.SUMS]["mean"])
    assert f"{lost:+.1f} points" in shown


def test_demonstrations_are_counted_as_often_as_they_are_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of two steps: each step has a rollout, a demonstration that is learned from, and one that is dropped."""
    rows = [
        {"sampled_logp": [-1.0], "dropped_reason": None},
        {"sampled_logp": None, "dropped_reason": None},
        {"sampled_logp": None, "dropped_reason": "all rewards are equal"},
    ]

    class Store:
        def __init__(self, run: Path) -> None:
            self.extra = run.parent.name == "seed_1"

        def __enter__(self) -> "Store":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def metrics(self) -> list[int]:
            return [1, 2]

        def rollouts(self, step: int, columns: object) -> list[dict[str, object]]:
            return rows + rows * self.extra

    monkeypatch.setattr(two_families.RunStore, "open", lambda run, reading: Store(run))
    for seed in (0, 1):
        (tmp_path / "0-grpo" / f"seed_{seed}" / "grpo-1").mkdir(parents=True)
        (tmp_path / "0-grpo" / f"seed_{seed}" / "grpo-1" / "recipe.yaml").touch()
    [row] = two_families.counted({"contenders": [{"contender": "grpo", "seeds": [0, 1]}]}, tmp_path)["contenders"]
    assert (row["demonstrations"]["values"], row["demonstrations"]["mean"]) == ([2.0, 4.0], 3.0)


def test_the_page_of_trust_is_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert trust.main(["--check"]) == 0, capsys.readouterr().err


def test_a_measurement_becomes_a_table_with_its_command_and_its_prose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"caption": "By kind.", "columns": ["kind", "wrong"], "rows": [["a|b", 0], ["c", None]]}
    (tmp_path / "falls.json").write_text(json.dumps({"title": "Falls", "command": "fall --all", "tables": [table]}))
    (tmp_path / "falls.md").write_text("From a low wall.\n")
    for name, path in (("ROOT", tmp_path), ("PARTS", tmp_path), ("PAGE", tmp_path / "trust.txt")):
        monkeypatch.setattr(trust, name, path)
    assert trust.main(["--check"]) == 1 and "trust.txt is out of date" in capsys.readouterr().err
    assert trust.main([]) == 0 == trust.main(["--check"])
    written = (tmp_path / "trust.txt").read_text()
    assert written.startswith(trust.INTRODUCTION)
    assert written.removeprefix(trust.INTRODUCTION).split("\n\n") == [
        "\n## Falls",
        "From a low wall.",
        "```text\n$ fall --all\n```",
        "By kind.",
        "| kind | wrong |\n|---|---|\n| a\\|b | 0 |\n| c |  |\n",
    ]


def test_the_page_of_performance_is_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert performance.main(["--check"]) == 0, capsys.readouterr().err


MACHINE = {
    "cpu": "A processor", "cores": 4, "threads": 2, "memory_bytes": 2**33, "python": "3.12", "packages": {"torch": "2"},
}  # fmt: skip


def test_speed_becomes_goals_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"size": "3.2M", "dtype": "float32", "workload": "fixed"}
    sampled = {**own, "measure": "sampling", "batch": 256, "value": 7.0, "unit": "tokens/s", "share": 0.61}
    started = {"measure": "start_up", "start": "warm", "value": 3.25, "unit": "s", "rounds": [3.0, 3.5]}
    measured = {"command": "posttrain bench", "machine": MACHINE, "figures": [sampled, started]}
    (tmp_path / "bench.json").write_text(json.dumps(measured))
    other = {"machine": MACHINE | {"instructions": "avx2 amx_bf16"}, "figures": [sampled | {"share": 0.3}]}
    (tmp_path / "bench_other.json").write_text(json.dumps(measured | other))
    failed = {**own, "measure": "grpo", "side": "trl_cb", "failed": "trl_cb: ended\nout of memory"}
    ratio = {"what": "grpo: a against b", "measure": "grpo", "dtype": "float32", "peer": "trl", "peer_dtype": "float32"}
    peers = {"command": "python -m benchmarks.peers", "machine": MACHINE, "peers": {"trl": "1"}, "size": "3.2M"}
    peers |= {"workload": "ragged", "figures": [failed], "same_results": []}
    peers |= {"comparison": [{**ratio, "ratio": 4.5, "rounds": [4.0, 5.0]}]}
    (tmp_path / "peers_3.2M_ragged.json").write_text(json.dumps(peers))
    for name, path in (("ROOT", tmp_path), ("PARTS", tmp_path), ("PAGE", tmp_path / "performance.txt")):
        monkeypatch.setattr(performance, name, path)
    assert performance.main(["--check"]) == 1 and "performance.txt is out of date" in capsys.readouterr().err
    assert performance.main([]) == 0 == performance.main(["--check"])
    lines = (tmp_path / "performance.txt").read_text().splitlines()
    for line in (
        "| sampling, 3.2M, fixed, batch 256, float32: share of the limit | at least 60% | 61%, met | 30%, missed |",
        "| GRPO, 3.2M, ragged, float32: against TRL | at least 4.00x | 4.50x, met | not measured |",
        "| GRPO, 3.2M, fixed, float32: against TRL | at least 1.70x | not measured | not measured |",
        "| start to first token, warm | at most 3.0 s | 3.2 s, missed | not measured |",
        "| trl_cb float32 | failed: out of memory |",
        "| grpo: a against b | 4.50 | 4.00 to 5.00 |",
        "A processor, 2 threads of 4 cores, 8 GiB, Python 3.12, torch 2.",
    ):
        assert line in lines
    assert performance.main(["--chek"]) == 2


def test_commands_of_experiments_can_still_be_given(tmp_path: Path) -> None:
    for experiment in all_experiments():
        words = iter(shlex.split(experiment.command))
        if experiment.command.startswith("posttrain plan "):
            given = dict(word.split("=", 1) for word in list(words)[2:] if "=" in word)
            costs = read_costs(given.pop("costs", "1:1"))
            found = splits(read_numbers(given.pop("budget")), costs, read_numbers(given.pop("shares")))
            recipe = find_recipe("sft_dpo", [f"{path}={value}" for path, value in given.items()])
            assert len([recipe_of(recipe, one) for one in found]) == len(experiment.table)
            continue
        if experiment.command.startswith("posttrain diagnose "):
            assert list(words)[2] in Diagnostic.kinds(), experiment.command
            continue
        if not experiment.contenders:
            assert (DOCS.parent / list(words)[1]).is_file(), experiment.command
            continue
        assert [next(words), next(words)] == ["posttrain", "compare"]
        given = [word for word in words if not (word.startswith("--") and next(words))]
        changes = [word for word in given if "=" in word.partition(" ")[0]]
        contenders = contenders_of([word for word in given if word not in changes], changes, tmp_path, threads=1)
        assert [contender.label for contender in contenders] == [row["contender"] for row in experiment.contenders]
