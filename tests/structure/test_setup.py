"""Set-up from nothing: which Python, which build of torch, and one clear sentence for everything that can go wrong."""

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

READY = 'case "$1" in -c) echo "3.12.4 ready" ;; *) echo "$0" "$@" ;; esac'
BARE = 'echo "3.12.4 bare"'
UNFIT = 'echo "3.9.2 unfit"'
SHIM = 'echo "command not found" >&2; exit 127'


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_install", ROOT / "setup" / "install.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but what decides about its environment."""
    (tmp_path / "setup").mkdir()
    for name in ("setup/install", "setup/install.py", "pyproject.toml", "constraints.txt", "Makefile"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


# Which Python


def find_python(checkout: Path, pythons: dict[str, str], **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the script where only these programs are on the path; each is a line of shell."""
    folder = checkout / "bin"
    folder.mkdir()
    for name, line in pythons.items():
        path = checkout / name if "/" in name else folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (folder / "dirname").symlink_to(str(shutil.which("dirname")))
    return subprocess.run(
        [str(shutil.which("sh")), "setup/install", "core"],
        cwd=checkout,
        env={"PATH": str(folder), **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": READY, "python3.13": READY}, "bin/python3"),
        ({"python3": UNFIT, "python3.13": SHIM, "python3.12": READY}, "bin/python3.12"),
        ({"python3": BARE, "python3.11": READY}, "bin/python3.11"),
        ({"python3": READY, ".venv/bin/python": READY}, "setup/../.venv/bin/python"),
        ({"python3": READY, ".venv/bin/python": SHIM}, "bin/python3"),
    ],
)
def test_the_first_python_that_will_do_is_taken(checkout: Path, pythons: dict[str, str], chosen: str) -> None:
    done = find_python(checkout, pythons)
    assert done.returncode == 0
    assert done.stdout.split()[0].endswith(chosen)
    assert done.stdout.split()[1:] == ["setup/install.py", "core"]


def test_the_python_that_is_named_is_taken(checkout: Path) -> None:
    pythons = {"python3": READY, ".venv/bin/python": READY, "mine": READY}
    assert find_python(checkout, pythons, PYTHON="mine").stdout.split()[0].endswith("bin/mine")


@pytest.mark.parametrize(
    ("pythons", "variables", "reason"),
    [
        ({}, {}, "none was found"),
        ({"python3": SHIM}, {}, "none was found"),
        ({"python3": UNFIT}, {}, "python3 is Python 3.9.2"),
        ({"python3": UNFIT, "python3.12": BARE}, {}, "Python 3.12.4 (python3.12) lacks it"),
        ({"python3": READY}, {"PYTHON": "python3.99"}, "python3.99 does not run"),
        ({"python3": READY, "old": UNFIT}, {"PYTHON": "old"}, "old is Python 3.9.2"),
    ],
)
def test_without_one_it_is_one_sentence(
    checkout: Path, pythons: dict[str, str], variables: dict[str, str], reason: str
) -> None:
    done = find_python(checkout, pythons, **variables)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"error: posttrain needs Python 3.11, 3.12 or 3.13 with the venv module; {reason}. "
        "On Debian: apt install python3 python3-venv; or name one: make PYTHON=/path/to/python3.12 ...\n"
    )


def test_the_probe_runs_on_this_python(checkout: Path) -> None:
    """The real probe, not an imitation: this Python is ready, so the script hands over to install.py."""
    (checkout / "setup" / "install.py").write_text("import sys; print('handed over', *sys.argv[1:])")
    done = subprocess.run(
        ["sh", "setup/install", "dev"],
        cwd=checkout,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "handed over dev\n"


# Which build of torch


class FakePip:
    """Has which requirements exist, and writes down what is asked of it."""

    python = Path(sys.executable)

    def __init__(self, exists: Sequence[str], needs: Sequence[str] = ()):
        self.exists, self.needs, self.asked = exists, needs, list[tuple[str, ...]]()

    def install(self, *arguments: str) -> None:
        self.asked.append(arguments)

    def has(self, requirement: str, *options: str) -> bool:
        self.asked.append((requirement, *options))
        return requirement in self.exists

    def report(self, requirement: str) -> dict[str, Any]:
        return {"install": [{"metadata": {"name": "torch", "requires_dist": list(self.needs)}}]}


CUDA = [
    "filelock",
    'cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
    'opt-einsum>=3.3; extra == "opt-einsum"',
]


@pytest.fixture
def roomy(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "need_room", lambda folder, needed: None)
    monkeypatch.setattr(install.sys, "platform", "linux")


@pytest.mark.usefixtures("roomy")
def test_without_a_gpu_the_cpu_build_is_taken_where_there_is_one(
    install: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    pip = FakePip(exists=["torch==2.13.0+cpu"], needs=CUDA)
    install.install_torch(pip, "2.13.0", gpu=False, index="")
    assert pip.asked == [("torch==2.13.0+cpu",)]
    assert "GPU libraries" not in capsys.readouterr().out


@pytest.mark.usefixtures("roomy")
def test_without_a_cpu_build_it_states_what_comes_instead_and_goes_on(
    install: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    pip = FakePip(exists=[], needs=CUDA)
    install.install_torch(pip, "2.13.0", gpu=False, index="")
    assert pip.asked == [("torch==2.13.0+cpu",), ("--no-deps", "torch==2.13.0")]
    said = capsys.readouterr().out
    assert "no index that pip is configured with has a CPU build of torch 2.13.0" in said
    assert re.search(r"brings GPU libraries, \d\.\d GB to download", said)
    assert "TORCH_INDEX=<address>" in said


@pytest.mark.usefixtures("roomy")
def test_a_plain_build_without_gpu_libraries_needs_no_warning(
    install: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    install.install_torch(FakePip(exists=[], needs=["filelock"]), "2.13.0", gpu=False, index="")
    assert "GPU libraries" not in capsys.readouterr().out


@pytest.mark.usefixtures("roomy")
def test_torch_index_is_where_torch_is_taken_from(install: ModuleType) -> None:
    pip = FakePip(exists=["torch==2.13.0+cpu"])
    install.install_torch(pip, "2.13.0", gpu=False, index="https://example.org/cpu")
    assert pip.asked == [("torch==2.13.0+cpu", "--index-url", "https://example.org/cpu")]
    with pytest.raises(install.Stop, match=r"TORCH_INDEX=https://example\.org/cpu has no CPU build of torch 2\.13\.0"):
        install.install_torch(FakePip(exists=[]), "2.13.0", gpu=False, index="https://example.org/cpu")


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize(
    ("index", "asked"),
    [
        ("", ("--no-deps", "torch===2.13.0")),
        ("https://example.org/cu", ("--no-deps", "torch==2.13.0", "--index-url", "https://example.org/cu")),
    ],
)
def test_with_a_gpu_the_cpu_build_is_never_taken(install: ModuleType, index: str, asked: tuple[str, ...]) -> None:
    pip = FakePip(exists=["torch==2.13.0+cpu"])
    install.install_torch(pip, "2.13.0", gpu=True, index=index)
    assert pip.asked == [asked]


def test_gpu_packages_are_known_by_name(install: ModuleType) -> None:
    report = {"install": [{"metadata": {"requires_dist": CUDA}}, {"metadata": {"name": "no-needs"}}]}
    assert install.gpu_packages(report) == ["cuda-toolkit", "nvidia-cudnn-cu13"]
    assert install.gpu_packages({"install": []}) == []


# What goes wrong


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<HTTPSConnection>: "
            "Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/torch/\n"
            "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)\n"
            "ERROR: No matching distribution found for torch==2.13.0",
            "the package index does not answer",
        ),
        (
            "ERROR: No matching distribution found for duckdb==2.0.0",
            "no index that pip is configured with has duckdb==2.0.0",
        ),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("error: command 'gcc' failed: No such file or directory", "a package could not be compiled"),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: 'x'",
            "a file could not be",
        ),
        ("Something new\nERROR: and odd\n\n", "pip failed: ERROR: and odd"),
        ("", "pip failed: it printed nothing"),
    ],
)
def test_a_failure_of_pip_is_one_sentence(install: ModuleType, output: str, meaning: str) -> None:
    assert install.explain(output).startswith(meaning)
    assert "\n" not in install.explain(output)


def test_a_full_disk_is_seen_before_anything_is_made(install: ModuleType, tmp_path: Path) -> None:
    install.need_room(tmp_path, 1.0)
    with pytest.raises(
        install.Stop, match=rf"set-up needs [\d.]+ GB of free disk in {tmp_path}, and there are [\d.]+ GB"
    ):
        install.need_room(tmp_path, 1e18)


def test_pip_writes_to_its_log_and_a_failure_names_it(install: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\necho "ERROR: No matching distribution found for torch==1+cpu"\nexit 1\n')
    python.chmod(0o755)
    pip = install.Pip(tmp_path)
    with pytest.raises(install.Stop, match=rf"has torch==1\+cpu .*; pip's own words are in {tmp_path}/install\.log"):
        pip.install("torch==1+cpu")
    assert "No matching distribution" in (tmp_path / "install.log").read_text()
    assert pip.has("torch==1+cpu") is False
    with pytest.raises(install.Stop):
        pip.has("other==1")


def test_every_end_has_an_exit_code(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [
        (None, 0),
        (install.Stop("no"), 1),
        (PermissionError(13, "Permission denied"), 1),
        (KeyboardInterrupt(), 130),
    ]
    for error, code in ends:

        def main(target: str, error: BaseException | None = error) -> None:
            if error:
                raise error

        monkeypatch.setattr(install, "main", main)
        assert install.run(["core"]) == code
    assert capsys.readouterr().err.startswith("error: no.\nerror: set-up could not write to this checkout: [Errno 13]")
    assert install.run(["everything"]) == 2


# Made once, and again only when something changed


@pytest.fixture
def recorded(install: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Sets up the checkout with everything that takes time replaced; gives what was done."""
    done: list[str] = []

    class Pip(FakePip):
        def __init__(self, environment: Path):
            super().__init__(exists=["torch==2.13.0+cpu"])

        def install(self, *arguments: str) -> None:
            done.append(arguments[-1])

    def make_environment(environment: Path) -> None:
        done.append("made")
        environment.mkdir(exist_ok=True)
        (environment / "pyvenv.cfg").write_text("")
        (environment / "bin").mkdir(exist_ok=True)
        if not (environment / "bin" / "python").exists():
            (environment / "bin" / "python").symlink_to(sys.executable)

    def set_up(target: str) -> list[str]:
        done.clear()
        install.main(target)
        return [word.replace(str(checkout), "posttrain") for word in done]

    for name, value in {"ROOT": checkout, "Pip": Pip, "make_environment": make_environment}.items():
        monkeypatch.setattr(install, name, value)
    monkeypatch.setattr(install, "can_compile", lambda: True)
    monkeypatch.setattr(install, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(install, "install_programs", lambda: None)
    monkeypatch.delenv("TORCH_INDEX", raising=False)
    return set_up


def test_it_is_made_once(recorded: Callable[[str], list[str]]) -> None:
    assert recorded("core") == ["made", "setuptools", "posttrain"]
    assert recorded("core") == []
    assert recorded("dev") == ["setuptools", "posttrain[dev,reasoning-gym]"]
    assert recorded("dev") == recorded("core") == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "setup/install.py"])
def test_a_change_brings_it_up_to_date(recorded: Callable[[str], list[str]], checkout: Path, name: str) -> None:
    recorded("core")
    with (checkout / name).open("a") as file:
        file.write("\n# changed\n")
    assert recorded("core") == ["setuptools", "posttrain"]


def test_an_interrupted_installation_is_taken_up_again(
    recorded: Callable[[str], list[str]], install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(install, "install_torch", interrupted)
        recorded("core")
    assert recorded("core") == ["setuptools", "posttrain"]


def test_a_broken_or_foreign_environment_is_made_anew(recorded: Callable[[str], list[str]], checkout: Path) -> None:
    recorded("core")
    python = checkout / ".venv" / "bin" / "python"
    for line in ("exit 127", "echo 3.8"):
        python.unlink()
        python.write_text(f"#!/bin/sh\n{line}\n")
        python.chmod(0o755)
        assert recorded("core")[0] == "made"


def test_a_folder_that_is_something_else_is_left_alone(install: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(install.Stop, match="is not a virtual environment; move it away"):
        install.fault_of(tmp_path)


def test_without_a_compiler_reasoning_gym_is_left_out_and_reported(
    recorded: Callable[[str], list[str]],
    install: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(install, "can_compile", lambda: False)
    assert recorded("dev")[-1] == "posttrain[dev]"
    assert "leaving out reasoning-gym and its tests: it needs a C compiler" in capsys.readouterr().out


# The files themselves


@pytest.mark.parametrize("root", [True, False])
def test_programs_for_the_sandbox_come_from_apt_or_are_named(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], root: bool
) -> None:
    run: list[list[str]] = []

    def record(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        run.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="E: no network\n")

    missing = {"bwrap", "lua"}
    monkeypatch.setattr(install.shutil, "which", lambda name: None if name in missing else f"/usr/bin/{name}")
    monkeypatch.setattr(install.os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(install.subprocess, "run", record)
    install.install_programs()
    said = capsys.readouterr().out
    assert [command[-1] for command in run] == (["-q", "bubblewrap", "lua5.4"] if root else [])
    assert ("could not install bubblewrap, lua5.4: E: no network" if root else "apt install bubblewrap lua5.4") in said
    missing.clear()
    run.clear()
    install.install_programs()
    assert not run and not capsys.readouterr().out


def test_everything_that_is_asked_for_is_pinned() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    pins = {canonicalize_name(r.name): r for r in map(Requirement, lines)}
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in chain(project["dependencies"], *project["optional-dependencies"].values()):
        wanted = Requirement(text)
        if wanted.name != "posttrain":
            version = str(pins[canonicalize_name(wanted.name)].specifier).removeprefix("==")
            assert wanted.specifier.contains(version), f"{text}, and constraints.txt has {version}"


def test_make_lists_its_targets_and_does_not_install_for_that(checkout: Path) -> None:
    done = subprocess.run(["make", "--no-print-directory"], cwd=checkout, capture_output=True, text=True, check=True)
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    assert {"quickstart", "test", "test-fast", "check", "docs", "clean"} <= set(listed)
    assert not (checkout / ".venv").exists()


def test_a_failed_set_up_fails_make(checkout: Path) -> None:
    done = subprocess.run(["make", "quickstart", "PYTHON=no-such-python"], cwd=checkout, capture_output=True, text=True)
    assert done.returncode != 0
    assert "no-such-python does not run" in done.stderr


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make --no-print-directory test" in script.read_text()


# What a package index shows


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_for_index", ROOT / "setup.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


README = """<!-- a note -->
![Picture](docs/run.svg)
See [runs](docs/runs.md#more), [`src`](src/a.py), [paper](https://arxiv.org/abs/1), [here](#top).
```bash
echo "[a](b)"
```
"""


def test_links_of_the_readme_lead_somewhere_in_an_index(build: ModuleType) -> None:
    assert build.description(README, "https://example.org/me/it/") == (
        "![Picture](https://example.org/me/it/raw/main/docs/run.svg)\n"
        "See [runs](https://example.org/me/it/blob/main/docs/runs.md#more), "
        "[`src`](https://example.org/me/it/blob/main/src/a.py), [paper](https://arxiv.org/abs/1), [here](#top).\n"
        '```bash\necho "[a](b)"\n```\n'
    )
    assert build.description(README, None).splitlines()[:2] == [
        "",
        "See runs, `src`, [paper](https://arxiv.org/abs/1), [here](#top).",
    ]


def test_no_link_of_the_real_readme_is_relative(build: ModuleType) -> None:
    text = (ROOT / "README.md").read_text()
    for source in (None, "https://example.org/me/it"):
        prose = build.FENCE.sub("", build.description(text, source))
        targets = re.findall(r"\]\(([^)]*)\)", prose)
        assert len(targets) > 10 and all(re.match(r"https://", target) for target in targets)
        assert ("docs/run.svg" in prose) == (source is not None)


def test_the_built_metadata_has_it(tmp_path: Path) -> None:
    """As pip makes it, from a checkout."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src/posttrain/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    code = "from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    [metadata] = tmp_path.glob("*.dist-info/METADATA")
    text = metadata.read_text()
    assert "Description-Content-Type: text/markdown" in text and "# posttrain" in text
    assert "](docs/" not in text and "](src/" not in text
