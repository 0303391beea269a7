import json
import re
from pathlib import Path

import pytest

from posttrain.cli import main


def lines(capfd: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(list(arguments)) == 0
    return capfd.readouterr().out.splitlines()


def test_a_method_states_its_area_parent_and_setting(capfd: pytest.CaptureFixture[str]) -> None:
    (gigpo,) = json.loads("\n".join(lines(capfd, "list", "recipe", "--row", "267", "--json")))
    assert list(gigpo)[:5] == ["name", "family", "rows", "source", "summary"]
    assert (gigpo["area"], gigpo["parent"], gigpo["setting"]) == ("credit", "grpo", "corridor")
    assert gigpo["source"] == "arXiv:2505.10978" and gigpo["inherited"].keys() == {"penalties"}


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_list_fits_into_its_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["list", "recipe"]) == 0
    told = capfd.readouterr()
    shown = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in told.out.splitlines()]
    assert max(map(len, shown)) <= columns
    assert ("parent" in shown[0]) == (columns == 200)
    assert "high_entropy_tokens" in told.out, "no name is broken"
    assert "posttrain list --help explains the columns" in told.err


def test_a_method_is_compared_with_its_parent_on_its_setting(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = ["~ advantage              group_mean -> gigpo", "- filters.zero_variance  zero_variance"]
    assert lines(capfd, "diff", "gigpo") == expected
    Path("mine.yaml").write_text("base: corridor\nseed: 7\n")
    assert lines(capfd, "diff", "gigpo", "setting=mine.yaml") == expected
    assert lines(capfd, "diff", "gigpo", "corridor", "seed=8") == expected
    assert main(["diff", "gigpo", "grpo", "ppo"]) == 2
    assert "two recipes are compared, got gigpo, grpo, ppo" in capfd.readouterr().err


def test_what_methods_change_of_one_another_is_reported_beside_the_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "lite_ppo+gigpo", "setting=corridor", "--json"]) == 0
    written = capfd.readouterr()
    assert json.loads(written.out)["name"] == "lite_ppo+gigpo"
    assert written.err.startswith("note: gigpo changes what lite_ppo had changed: advantage  ")


def test_the_help_explains_every_column() -> None:
    from posttrain.cli import list as verb

    for column in verb.COLUMNS:
        assert re.search(rf"^    {column} +\w", verb.__doc__ or "", re.MULTILINE), column
