import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from posttrain import cli
from posttrain.cli import group, main
from posttrain.errors import AlarmStop, Interrupted, RunFailed, UserError

POSTTRAIN = [sys.executable, "-c", "import sys; from posttrain.cli import main; sys.exit(main())"]
VERBS = group.list_commands(click.Context(group))


def posttrain(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*POSTTRAIN, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes the verb `list` raise something, after some of its own output."""

    def install(error: BaseException) -> None:
        @click.command()
        @click.option("--json", "as_json", is_flag=True)
        def command(as_json: bool) -> None:
            print("noise")
            os.write(1, b"noise of native code\n")
            raise error

        monkeypatch.setattr("posttrain.cli.list.command", command)

    return install


# Help


def test_help_lists_every_verb_with_the_first_line_of_its_file() -> None:
    shown = " ".join(posttrain("--help").stdout.split())
    for verb in VERBS:
        docstring = ast.get_docstring(ast.parse(Path(cli.__path__[0], f"{verb}.py").read_text()))
        assert docstring and f" {verb} {docstring.splitlines()[0].removesuffix('.')}" in shown


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_json_and_a_help_page_with_an_example(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    shown = capfd.readouterr().out
    assert "--json" in shown and f"    posttrain {verb}" in shown


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["list"], ["list", "recipe", "--json"]])
def test_what_must_answer_at_once_imports_nothing_heavy(arguments: list[str]) -> None:
    """What takes a second to import is what makes a command slow, on every machine alike."""
    code = f"import sys; from posttrain.cli import main; main({arguments}); print('LOADED', *sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = set(done.stdout.partition("LOADED\n")[2].split())
    assert done.returncode == 0 and "click" in loaded
    light = {"torch", "transformers", "pydantic", "numpy", "duckdb", "ruamel.yaml", "tokenizers", "jinja2"}
    assert not loaded & (light | ({"rich"} if "--help" in arguments else set()))


def test_the_version() -> None:
    assert posttrain("--version").stdout.startswith("posttrain ")


# Wrong command lines


def test_a_mistyped_verb_gets_the_nearest() -> None:
    done = posttrain("shw", "grpo")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no verb 'shw'; did you mean 'show'?\n")


def test_no_verb_shows_the_help() -> None:
    done = posttrain()
    assert done.returncode == 2
    assert "Verbs:" in done.stderr


def test_an_override_with_dashes_is_corrected() -> None:
    done = posttrain("show", "grpo", "--rollout.n=4")
    assert done.returncode == 2
    assert "A change to a recipe is written without dashes: rollout.n=VALUE" in done.stderr


def test_a_missing_argument_shows_the_usage() -> None:
    done = posttrain("show")
    assert done.returncode == 2
    assert "Missing argument 'RECIPE'" in done.stderr
    assert "Usage: posttrain show" in done.stderr


# Ends


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("that is wrong"), 2, "that is wrong"),
        (RunFailed("the disk is full"), 1, "the disk is full"),
        (AlarmStop("entropy is gone"), 3, "entropy is gone"),
        (Interrupted("go on with resume"), 130, "go on with resume"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (PermissionError(13, "Permission denied", "runs/x"), 1, "runs/x: Permission denied"),
    ],
)
def test_failures_are_one_message_and_a_code(
    failing: Callable[[BaseException], None],
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    failing(error)
    assert main(["list"]) == code
    assert capfd.readouterr().err == f"error: {message}\n"


@pytest.mark.parametrize("error", [ZeroDivisionError("a\nb"), KeyError("x"), MemoryError()])
def test_an_unexpected_error_names_its_place(
    failing: Callable[[BaseException], None], capfd: pytest.CaptureFixture[str], error: Exception
) -> None:
    failing(error)
    assert main(["list"]) == 1
    written = capfd.readouterr().err
    assert "posttrain/cli/_main.py line " in written
    assert "Traceback" not in written
    assert ("POSTTRAIN_TRACEBACK=1" in written) is not isinstance(error, MemoryError)


def test_the_traceback_is_shown_when_asked_for(
    failing: Callable[[BaseException], None], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(ZeroDivisionError("x"))
    monkeypatch.setenv("POSTTRAIN_TRACEBACK", "1")
    assert main(["list"]) == 1
    assert "Traceback (most recent call last)" in capfd.readouterr().err


# Answers for programs


def test_json_is_all_that_reaches_standard_output(
    failing: Callable[[BaseException], None], capfd: pytest.CaptureFixture[str]
) -> None:
    failing(UserError("that is wrong"))
    assert main(["list", "--json"]) == 2
    written = capfd.readouterr()
    assert json.loads(written.out) == {"error": "that is wrong", "exit_code": 2}
    assert {"noise", "noise of native code", "error: that is wrong"} <= set(written.err.splitlines())
    assert main(["list"]) == 2
    assert "noise of native code" in capfd.readouterr().out, "standard output is back afterwards"


@pytest.mark.parametrize("arguments", [["shw", "--json"], ["show", "--json"], ["show", "gpro", "--json"]])
def test_every_error_is_json_for_programs(arguments: list[str]) -> None:
    done = posttrain(*arguments)
    answer = json.loads(done.stdout)
    assert done.returncode == answer["exit_code"] == 2
    assert answer["error"] in done.stderr


def test_json_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    done = posttrain("show", "grpo", "name=über", "--json", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["name"] == "über"


# Readers that go away


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["show", "grpo"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    process = subprocess.Popen([*POSTTRAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


def test_no_color_where_nobody_wants_it(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["diff", "grpo", "ppo"]) == 0
    assert "\x1b" not in capfd.readouterr().out
