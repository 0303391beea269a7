"""A folder to make mistakes in, and commands that must be refused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from posttrain.cli import main
from posttrain.policies.folder import new_folder
from tests.cli.mistakes.given import CONTEXT, REWARDS, Refused, write_rows


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return new_folder(folder, layers=1, width=32, heads=2, kv_heads=1, context=CONTEXT)


@pytest.fixture(autouse=True)
def here(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a tiny model, twelve sums and some rewards, to work in."""
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    Path("tiny").symlink_to(tiny)
    write_rows("sums.jsonl", [{"question": f"{i}+1=", "answer": str(i + 1)} for i in range(12)])
    Path("mine.py").write_text(REWARDS)
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.fixture
def ended(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs a command as people and as programs do: both get the same message and code, and nobody a traceback."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main(arguments)
        told = capfd.readouterr()
        assert "Traceback" not in told.err and "bug in posttrain" not in told.err
        assert main([*arguments, "--json"]) == code
        answered = capfd.readouterr()
        answer = json.loads(answered.out)
        assert set(answer) == {"error", "exit_code"}
        assert answer["exit_code"] == code != 0
        assert told.err == f"error: {answer['error']}\n"
        assert answered.err.endswith(told.err)
        return code, answer["error"]

    return run


@pytest.fixture
def refused(ended: Callable[..., tuple[int, str]], here: Path) -> Refused:
    """Runs a command that must be refused for its input: exit code 2, and no file is made."""

    def run(*arguments: str) -> str:
        before = sorted(p for p in here.iterdir() if p.name != "__pycache__")
        code, message = ended(*arguments)
        assert code == 2
        assert sorted(p for p in here.iterdir() if p.name != "__pycache__") == before
        return message

    return run
