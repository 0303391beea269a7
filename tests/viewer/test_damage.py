"""Damaged runs beside good ones: each is a row that states why, and everything else is served."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from posttrain.viewer import database
from tests.runs.made_runs import make_run
from tests.viewer.looking import Page, browser

pytestmark = pytest.mark.slow  # seconds for many of them


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _linked(path: Path, target: Path) -> None:
    if path.is_dir():
        path.rename(path.with_name("aside"))
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 * 2**30)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "half a summary": (lambda run: _write(run / "summary.json", '{"steps": 2, "accur'), "summary.json"),
    "a summary of other types": (lambda run: _write(run / "summary.json", '{"steps": "many"}'), "summary.json: steps"),
    "a gain without interval": (
        lambda run: _write(run / "summary.json", '{"gain": {"value": 1}}'),
        "summary.json: gain",
    ),
    "a summary that is a list": (lambda run: _write(run / "summary.json", "[1]"), "summary.json"),
    "a deep summary": (lambda run: _write(run / "summary.json", '{"a":' * 100_000), "summary.json"),
    "an empty entry in the history": (lambda run: _write(run / "history.jsonl", "{}\n"), "history.jsonl line 1"),
    "a line in the history": (lambda run: _write(run / "history.jsonl", "5\n"), "history.jsonl line 1"),
    "a deep history": (lambda run: _write(run / "history.jsonl", "[" * 100_000 + "\n"), "history.jsonl line 1"),
    "a broken recipe": (lambda run: _write(run / "recipe.yaml", "a: [1\n"), "recipe.yaml is no recipe"),
    "a recipe of another kind": (lambda run: _write(run / "recipe.yaml", "- 1\n"), "recipe.yaml is no recipe"),
    "a recipe that is not UTF-8": (
        lambda run: (run / "recipe.yaml").write_bytes(b"a: \xff"),
        "recipe.yaml is no recipe",
    ),
    "a pipe as recipe": (lambda run: _pipe(run / "recipe.yaml"), "recipe.yaml"),
    "a pipe as metrics": (lambda run: _pipe(run / "metrics.jsonl"), "metrics.jsonl cannot be read: it is no regular"),
    "a pipe as evaluations": (lambda run: _pipe(run / "evals.jsonl"), "evals.jsonl cannot be read"),
    "a linked history": (
        lambda run: _linked(run / "history.jsonl", Path("/etc/passwd")),
        "history.jsonl cannot be read: it",
    ),
    "metrics of 100 GB": (lambda run: _sparse(run / "metrics.jsonl"), "102,400 MiB"),
    "a summary of 100 GB": (lambda run: _sparse(run / "summary.json"), "102,400 MiB"),
    "evaluations of other types": (
        lambda run: _write(run / "evals.jsonl", '{"step": 0, "accuracy": "x"}\n'),
        "evals.jsonl line 1",
    ),
    "linked rollouts": (lambda run: _linked(run / "rollouts", run / "evals"), ""),
    "rollouts that are a loop": (lambda run: _linked(run / "rollouts", run / "rollouts"), ""),
    "a table of no step": (lambda run: _write(run / "rollouts" / "step_abc.parquet", ""), ""),
    "a table that is a pipe": (lambda run: _pipe(run / "rollouts" / "step_000007.parquet"), ""),
}
"""What is done to a run, and what its row states; nothing where the row needs nothing of what is damaged."""


def _write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"), sft=1, rl=2, tasks=4)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_takes_nothing_away(tmp_path: Path, whole: Path, damage: str) -> None:
    do, told = DAMAGES[damage]
    for name in ("good", "bad"):
        shutil.copytree(whole, tmp_path / name)
    do(tmp_path / "bad")
    looking = browser(tmp_path)
    rows = {row["name"]: row for row in looking.get("/?as=json").json()["runs"]}
    assert set(rows) == {"good", "bad"}
    assert rows["good"]["problem"] == "" and rows["good"]["steps"] == 3
    assert told in rows["bad"]["problem"] and bool(told) == bool(rows["bad"]["problem"])
    assert told in Page(looking.get("/").text).text
    assert looking.get("/compare?a=good&b=good").status_code == 200
    for end in ("", "/solved"):
        assert looking.get(f"/runs/good{end}").status_code == 200
        assert looking.get(f"/runs/bad{end}").status_code in (200, 400, 404, 500), end


def test_pipes_do_not_make_the_viewer_deaf_to_sigterm(tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "runs" / "bad")
    for name in ("metrics.jsonl", "history.jsonl", "recipe.yaml", "rollouts/step_000007.parquet"):
        _pipe(tmp_path / "runs" / "bad" / name)
    command = [sys.executable, "-m", "posttrain", "view", str(tmp_path / "runs"), "--port", "0", "--json"]
    viewer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert viewer.stdout is not None
        announced = "".join(iter(viewer.stdout.readline, "}\n")) + "}"
        address = urlsplit(json.loads(announced)["url"])
        for page in ("/?as=json", "/runs/bad", "/runs/bad/solved"):
            connection = HTTPConnection("127.0.0.1", address.port, timeout=60)
            connection.request("GET", page)
            assert connection.getresponse().read(), page
            connection.close()
        viewer.send_signal(signal.SIGTERM)
        assert viewer.wait(60) == 0
    finally:
        viewer.kill()
        viewer.wait()


def test_tables_of_no_step_and_links_are_passed_over(tmp_path: Path) -> None:
    run = make_run(tmp_path, sft=1, rl=2, tasks=4)
    for name in ("step_abc.parquet", "step_.parquet", "step_-1.parquet"):
        (run / "rollouts" / name).write_text("")
    (run / "rollouts" / "step_000009.parquet").symlink_to(run / "rollouts" / "step_000002.parquet")
    looking = browser(tmp_path)
    assert looking.get("/runs/quickstart-1/search?as=json").json()["in_all"] == 32
    assert looking.get("/runs/quickstart-1/solved?as=json").json()["columns"] == [[2, 2], [3, 3]]


def test_a_name_that_is_not_utf8_has_an_address(tmp_path: Path) -> None:
    run = make_run(tmp_path, sft=1, rl=1, tasks=4)
    run.rename(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    looking = browser(tmp_path)
    [row] = looking.get("/?as=json").json()["runs"]
    assert row["name"] == "caf\ufffd" and row["problem"] == ""
    for end in ("", "?as=json", "/search", "/steps/2/groups/0"):
        assert looking.get(f"/runs/caf%EF%BF%BD{end}").status_code in (200, 400, 500), end  # DuckDB opens no such path


def test_loops_of_links_and_closed_folders_are_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path, sft=1, rl=1, tasks=4)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    try:
        rows = browser(tmp_path).get("/?as=json").json()["runs"]
    finally:
        closed.chmod(0o700)
    assert [row["name"] for row in rows] == ["quickstart-1"]


def test_other_sites_get_nothing_but_links_work(tmp_path: Path) -> None:
    make_run(tmp_path, sft=1, rl=1, tasks=4)
    looking = browser(tmp_path)
    page = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert looking.get("/runs/quickstart-1/search?text=a", headers=page).status_code == 403
    assert looking.get("/", headers={**page, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert looking.get("/", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}).status_code == 200


def test_a_page_that_fails_is_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path, sft=1, rl=1, tasks=4)
    monkeypatch.setattr("posttrain.viewer.pages.curves", lambda *given: 1 / 0)
    response = browser(tmp_path).get("/runs/quickstart-1")
    assert response.status_code == 500 and "Not readable" in response.text


def test_an_answer_that_is_larger_than_any_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path, sft=1, rl=1, tasks=4)
    looking = browser(tmp_path)
    assert looking.get("/runs/quickstart-1/search").status_code == 200
    monkeypatch.setattr(database, "LARGEST", 1000)
    refused = looking.get("/runs/quickstart-1/search")
    assert refused.status_code == 500 and "which no run writes" in Page(refused.text).text
    assert looking.get("/").status_code == 200
