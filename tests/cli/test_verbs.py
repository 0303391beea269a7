"""show, diff, list and doctor, as they are called."""

import importlib.metadata
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import _machine, main
from posttrain.cli._machine import Check
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.catalogue import entries
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import override, to_tree


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def answer(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_what_show_prints_is_the_recipe(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "grpo", "rollout.n=4", "lr=1e-4"]) == 0
    Path("mine.yaml").write_text(capfd.readouterr().out)
    assert find_recipe("mine.yaml") == override(grpo(), ["rollout.n=4", "lr=1e-4"])


def test_show_as_json_is_the_tree(capfd: pytest.CaptureFixture[str]) -> None:
    assert answer(capfd, "show", "grpo", "seed=3") == {**to_tree(grpo()), "seed": 3}


def test_a_page_is_markdown_in_a_pipe_and_a_value_for_programs(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "dr-grpo", "--page"]) == 0
    printed = capfd.readouterr().out
    assert printed.startswith("# dr_grpo\n") and "~ advantage.scale  group -> none" in printed
    assert answer(capfd, "show", "dr_grpo", "--page") == {"method": "dr_grpo", "page": printed}
    assert main(["show", "dr_grpo", "seed=3", "--page"]) == 2
    assert "leave out seed=3" in capfd.readouterr().err


def test_diff_prints_a_line_a_difference_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("base: grpo\nseed: 3\nmodels.reference.source: role:policy\nfilters: {}\n")
    assert main(["diff", "mine.yaml", "grpo"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        "+ models.reference       {source: role:policy}",
        "- filters.zero_variance  zero_variance",
        "~ seed                   0 -> 3",
    ]


def test_diff_of_two_runs(capfd: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("a", "1"), ("b", "2")):
        assert main(["show", "grpo", f"seed={seed}"]) == 0
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "recipe.yaml").write_text(capfd.readouterr().out)
    changes = [{"path": "seed", "change": "changed", "from": 1, "to": 2}]
    assert answer(capfd, "diff", "runs/b", "runs/a") == {"recipe": "runs/b", "base": "runs/a", "changes": changes}
    assert main(["diff", "runs/a", "runs/a"]) == 0
    assert capfd.readouterr().out == "runs/a and runs/a are the same recipe\n"


def test_list_is_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "objective"]) == 0
    header, *rows = capfd.readouterr().out.splitlines()
    assert header.split() == ["name", "source", "summary"], "columns in which all rows are equal are left out"
    assert [row.split()[0] for row in rows] == [entry.name for entry in entries("objective")]


def test_list_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    found = answer(capfd, "list")
    assert found == json.loads(json.dumps([asdict(entry) for entry in entries()]))
    assert {"name", "family", "area", "rows", "source", "summary"} <= set(found[0])


@pytest.mark.parametrize(
    "asked, names",
    [
        (["recipe", "--area", "credit"], ["archer", "gigpo", "lare", "spa_rl", "userrl"]),
        (["--row", "267"], ["gigpo"]),
        (["recipe", "--text", "2503.20783"], ["dr_grpo"]),
        (["recipe", "--text", "gIGPO", "--area", "flow"], []),
    ],
)
def test_list_is_filtered(asked: list[str], names: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert [entry["name"] for entry in answer(capfd, "list", *asked)] == names


def test_an_area_that_is_not_there_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--area", "credits"]) == 2
    assert "no area 'credits'; did you mean 'credit'?" in capfd.readouterr().err


def test_doctor_reports_every_check_and_fails_if_one_fails(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Check:
        raise UserError("no such model")

    monkeypatch.setattr(_machine, "check_model", broken)
    monkeypatch.setattr(_machine, "extras", lambda: {"vision": ["no-such-package"]})
    assert main(["doctor"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert "fail  model          no such model" in lines
    assert "ok    vision         not installed (optional); to install it: pip install 'posttrain[vision]'" in lines
    assert [line.split()[1] for line in lines][:6] == ["python", "torch", "processor", "kernels", "memory", "disk"]
    assert main(["doctor", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert found["ok"] is False
    assert {"name": "model", "status": "fail", "found": "no such model", "advice": ""} in found["checks"]


def test_doctor_warns_of_little_disk_and_fails_without_write_access(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(dir: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", read_only)
    assert _machine.check_write_access().status == "fail"
    for free, status in ((1e8, "fail"), (1e9, "warn"), (1e10, "ok")):
        monkeypatch.setattr("shutil.disk_usage", lambda path, free=free: type("Usage", (), {"free": free}))
        assert _machine.check_disk().status == status


def test_extras_are_those_of_the_package() -> None:
    found = _machine.extras()
    assert found["reasoning-gym"] == ["reasoning-gym"]
    assert "dev" not in found


def test_there_are_no_extras_where_the_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", requires)
    assert _machine.extras() == {}


def test_the_bundled_model_writes_a_token() -> None:
    assert _machine.check_model().status == "ok"
