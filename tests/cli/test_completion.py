"""What a shell offers after TAB: names of recipes, paths and values of settings, models, runs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from posttrain.cli import group
from posttrain.policies.folder import new_folder
from tests.runs.made_runs import make_run

pytestmark = pytest.mark.slow  # seconds for many of them


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    make_run(folder / "runs", sft=1, rl=1, tasks=2)
    new_folder(folder / "models" / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    (folder / "mine.yaml").write_text("base: grpo\n")
    return folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(place)
    yield


def offered(*words: str) -> set[str]:
    """Completions of the last of these words."""
    shell = ShellComplete(group, {}, "posttrain", "_POSTTRAIN_COMPLETE")
    return {item.value for item in shell.get_completions(list(words[:-1]), words[-1])}


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["re"], {"replay", "resume"}),
        (["run", "dr_"], {"dr_grpo"}),
        (["run", "mi"], {"mine.yaml", "mixed_sums"}),
        (["run", "runs/"], {"runs/quickstart-1"}),
        (["run", "grpo", "roll"], {"rollout.", "rollout="}),
        (["run", "grpo", "rollout.sampling.te"], {"rollout.sampling.temperature="}),
        (["run", "grpo", "lr"], {"lr="}),
        (["run", "grpo", "rl.st"], {"rl.steps="}),
        (["run", "grpo", "models.policy.dtype="], {"models.policy.dtype=float32", "models.policy.dtype=bfloat16"}),
        (["run", "grpo", "models.policy.trained="], {"models.policy.trained=true", "models.policy.trained=false"}),
        (["run", "grpo", "reducer=t"], {"reducer=tokens"}),
        (["run", "grpo", "objective.kind=ppo"], {"objective.kind=ppo_clip"}),
        (["run", "grpo", "correction=tr"], {"correction=truncated"}),
        (["run", "grpo", "setting=corr"], {"setting=corridor"}),
        (["run", "grpo", "model=peb"], {"model=pebble"}),
        (["run", "grpo", "model=models/t"], {"model=models/tiny"}),
        (["run", "quickstart", "sft.ma"], {"sft.max_steps="}),
        (["resume", ""], {"runs/quickstart-1"}),
        (["runs", "rm", "runs/q"], {"runs/quickstart-1"}),
        (["sample", "runs"], {"runs/quickstart-1"}),
        (["list", "obj"], {"objective"}),
    ],
)
def test_words(words: list[str], some: set[str]) -> None:
    found = offered(*words)
    assert some <= found, found
    assert all(word.startswith(words[-1]) for word in found)


def test_a_mistake_completes_nothing() -> None:
    assert offered("run", "gpro", "st") == set()
    assert offered("run", "grpo", "rolout.n") == set()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["run", "dr_g"], ["dr_grpo"]),
        (["run", "grpo", "models.policy.dty"], ["models.policy.dtype="]),
        (["run", "grpo", "models.policy.dtype", "=", "b"], ["bfloat16"]),
        (["run", "grpo", "models.policy.dtype", "="], ["bfloat16", "float32"]),
        (["run", "grpo", "lr", "=", "1", "models.policy.dtype", "=", "f"], ["float32"]),
    ],
)
def test_bash_inserts_the_part_that_is_missing(words: list[str], replies: list[str], tmp_path: Path) -> None:
    """Bash counts ``=`` as a word."""
    program = tmp_path / "posttrain"
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom posttrain.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    script = f"""
compopt() {{ :; }}
eval "$(_POSTTRAIN_COMPLETE=bash_source {program})"
COMP_WORDS=(posttrain {" ".join(words)}) COMP_CWORD={len(words)}
_posttrain_completion {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=os.environ, timeout=60)
    assert done.stdout.split() == replies, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str) -> None:
    code = "from posttrain.cli import main; main([])"
    variables = {**os.environ, "_POSTTRAIN_COMPLETE": f"{shell}_source"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, timeout=60)
    assert done.returncode == 0 and "_posttrain_completion" in done.stdout, done.stderr


def test_every_verb_that_takes_a_recipe_a_model_or_a_run_completes_it() -> None:
    context = click.Context(group)
    silent = []
    for verb in group.list_commands(context):
        found = group.get_command(context, verb)
        assert found is not None
        for parameter in found.params:
            if parameter.name in ("recipe", "recipes", "model", "models", "run", "changes", "places"):
                silent += [] if parameter._custom_shell_complete else [(verb, parameter.name)]
    assert not silent, json.dumps(silent)


def test_models_are_completed_after_a_role_too() -> None:
    from posttrain.cli._completion import complete_role_model

    command = group.get_command(click.Context(group), "judge")
    assert command is not None
    option = next(parameter for parameter in command.params if parameter.name == "models")
    found = complete_role_model(click.Context(command), option, "judge=peb")
    assert "judge=pebble" in [item.value for item in found]
