"""A model is a folder, a run, or a repository of the hub, wherever a model is asked for."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import posttrain
from posttrain.cli import main
from posttrain.errors import RunFailed, UserError
from posttrain.models import hub as hub_models
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs.fitting import fit_to_models
from posttrain.runs.launch import resume, start
from posttrain.runs.live import LiveView
from tests.runs.hub import COMMIT, TOKEN, Hub, hub_on_loopback
from tests.runs.processes import history

pytestmark = pytest.mark.slow  # seconds for many of them

SMALL = (
    "tasks.size=60",
    "evaluation.holdout=4",
    "steps=1",
    "prompts=2",
    "rollout.n=2",
    "rollout.sampling.max_tokens=4",
    "threads=1",
    "lr=1e-4",
)
SET = ("learner.schedule.warmup=0", "models.policy.chat=false", "evaluation.early=0")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return new_folder(folder, layers=1, width=32, heads=2, kv_heads=1, context=64)


@pytest.fixture
def hub(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, and an empty cache; nobody is logged in."""
    import huggingface_hub.constants as constants

    with hub_on_loopback() as found:
        found.add("org/small", tiny)
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub_models, "SECONDS", 60.0)
        yield found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    yield
    torch.set_num_threads(threads)


def closed_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_model_of_the_hub_is_downloaded_without_code_and_pinned(hub: Hub, tiny: Path) -> None:
    folder = hub_models.download("org/small")
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors"} <= names
    assert not {"modeling_mine.py", "pytorch_model.bin"} & names
    assert (folder / "model.safetensors").read_bytes() == (tiny / "model.safetensors").read_bytes()
    assert hub_models.pinned("org/small") == f"org/small@{COMMIT}"
    asked = len(hub.requests)
    assert hub_models.download(f"org/small@{COMMIT}") == folder
    assert len(hub.requests) == asked, "a commit that is in the cache needs no connection"


def test_a_run_of_it_records_the_commit_and_goes_on_without_a_connection(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = find_recipe("grpo", ["model=org/small", *SMALL, *SET])
    folder, _ = start(recipe, Path("runs"), LiveView(lines=True))
    written = find_recipe(str(folder))
    assert written.models["policy"].source == f"org/small@{COMMIT}"
    events = (folder / "events.jsonl").read_text()
    assert f"models.policy.source is org/small@{COMMIT}, which is what org/small has now" in events
    monkeypatch.setenv("HF_ENDPOINT", closed_port())
    resume(folder, LiveView(lines=True), ["steps=2"])
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    assert hub_models.download("org/small").name == COMMIT, "the copy is taken where there is no connection"


def test_what_is_reported_without_a_connection(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", closed_port())
    for command in (["sample", "org/other", "a"], ["run", "grpo", "model=org/other", *SMALL]):
        assert main(command) == 2
        told = capfd.readouterr().err
        assert "there is no folder 'org/other' here" in told and "cannot be reached" in told
    assert not Path("runs").exists()


def test_a_hub_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait has a limit whatever hangs: here it would be for ever."""
    ended = threading.Event()
    with pytest.raises(TimeoutError, match="no answer within"):
        hub_models.within(0.01, ended.wait)
    ended.set()
    assert hub_models.SECONDS < 5


@pytest.mark.parametrize("source", ["org/none", "org/small@nothing/here"])
def test_what_the_hub_does_not_have(hub: Hub, source: str) -> None:
    hub.repositories = {}
    with pytest.raises(UserError, match=r"has no model 'org/\w+'.*status 404.*HF_TOKEN"):
        hub_models.download(source)


def test_what_is_a_name_of_the_hub() -> None:
    Path("models").mkdir()
    assert hub_models.is_hub_name("HuggingFaceTB/SmolLM2-135M-Instruct@main")
    for other in ("pebble", "models/tiny", "./org/name", "~/name", "a/b/c", "/org/name", "role:policy", "org/"):
        assert not hub_models.is_hub_name(other), other


def test_a_run_is_a_model_everywhere(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As policy, as a frozen role, for every verb; what is recorded is the folder of its model."""
    first, _ = start(find_recipe("grpo", [f"model={tiny}", *SMALL]), Path("runs"), LiveView(lines=True))
    penalty = ["penalties.kl.kind=kl", f"models.reference.source={first}"]
    recipe = find_recipe("grpo", [f"model={first}", *penalty, *SMALL])
    second, _ = start(recipe, Path("runs"), LiveView(lines=True))
    models = find_recipe(str(second)).models
    assert models["policy"].source == models["reference"].source == f"{first}/model"
    for command in (
        ["sample", str(first), "Q:", "--max-tokens", "2"],
        ["eval", str(first), "threads=1"],
        ["estimate", "grpo", f"model={first}", *SMALL, "--no-measure"],
        ["run", "grpo", f"model={first}", *SMALL, "--dry-run"],
        ["diagnose", "sparsity", str(tiny), str(first)],
        ["merge", str(tiny), str(first), "--out", "merged"],
    ):
        assert main(command) == 0, (command, capfd.readouterr().err)
    assert len(posttrain.sample(first, "Q:", 2, max_tokens=2)) == 2


def test_a_gguf_file_is_a_model_everywhere(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As policy, as a frozen role, for every verb that takes a model."""
    pytest.importorskip("gguf")
    from tests.policies.gguf.gguf_files import write_gguf

    file = str(write_gguf(Path("tiny.gguf"), tiny))
    penalty = ["penalties.kl.kind=kl", f"models.reference.source={file}"]
    for command in (
        ["run", "grpo", f"model={file}", *penalty, *SMALL],
        ["run", "grpo", f"model={file}", *SMALL, "--dry-run"],
        ["estimate", "grpo", f"model={file}", *SMALL, "--no-measure"],
        ["sample", file, "Q:", "--max-tokens", "2"],
        ["eval", file, "tasks=arithmetic", "evaluation.holdout=4", "threads=1"],
        ["diagnose", "sparsity", str(tiny), file],
        ["merge", str(tiny), file, "--out", "merged"],
    ):
        assert main(command) == 0, (command, capfd.readouterr().err)
    saved = Path("runs/grpo-1/model")
    assert (saved / "model.safetensors").is_file() and not list(saved.glob("*.gguf")), "saved as an ordinary folder"


def test_a_role_of_a_run(tmp_path: Path) -> None:
    run = tmp_path / "made"
    for part in ("model", "checkpoints/step_000001_0/models/critic", "checkpoints/step_000002_0/models/critic"):
        (run / part).mkdir(parents=True)
    (run / "recipe.yaml").write_text("name: made\n")
    from posttrain.models.sources import find_model, model_of_run

    assert find_model(str(run)) == find_model(str(run), "teacher") == run / "model"
    assert find_model(str(run), "critic") == run / "checkpoints/step_000002_0/models/critic"
    with pytest.raises(UserError, match="has no model in the role 'judge'"):
        model_of_run(run, "judge")


# Pushing


def test_the_model_is_pushed_at_the_end_once(hub: Hub, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    recipe = find_recipe("grpo", [f"model={tiny}", *SMALL, "push=me/mine"])
    folder, _ = start(recipe, Path("runs"), LiveView(lines=True))
    [created] = hub.created
    assert (created["organization"], created["name"], created["visibility"]) == ("me", "mine", "private")
    pushed = hub.pushed["me/mine"]
    assert pushed["model.safetensors"] == (folder / "model" / "model.safetensors").read_bytes()
    assert json.loads(pushed["config.json"]) == json.loads((folder / "model" / "config.json").read_text())
    assert ("pushed", f"the model was pushed to {hub.url}/me/mine") in history(folder)
    hub.pushed.clear()
    resume(folder, LiveView(lines=True))
    assert not hub.pushed, "it is there already"


def test_without_a_token_nothing_begins(hub: Hub, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = find_recipe("grpo", [f"model={tiny}", *SMALL, "push=me/mine"])
    with pytest.raises(UserError, match=r"push is 'me/mine'.* needs a token"):
        start(recipe, Path("runs"), LiveView(lines=True))
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UserError, match=r"push is 'me/mine'.* needs a token"):
        start(recipe, Path("runs"), LiveView(lines=True))
    assert not Path("runs").exists()


def test_a_push_that_fails_loses_nothing_and_is_repeated(hub: Hub, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.fails = True
    recipe = find_recipe("grpo", [f"model={tiny}", *SMALL, "push=me/mine"])
    with pytest.raises(RunFailed, match=r"is saved in runs/grpo-1, but .*posttrain resume runs/grpo-1"):
        start(recipe, Path("runs"), LiveView(lines=True))
    assert Path("runs/grpo-1/summary.json").is_file() and Path("runs/grpo-1/model/config.json").is_file()
    hub.fails = False
    resume(Path("runs/grpo-1"), LiveView(lines=True))
    assert "model.safetensors" in hub.pushed["me/mine"]


@pytest.mark.parametrize("name", ["mine", "a/b/c", "me/"])
def test_a_name_that_is_no_repository(name: str) -> None:
    with pytest.raises(UserError, match="push"):
        find_recipe("grpo", [f"push={name}"])


def test_nothing_is_pinned_that_cannot_change(tiny: Path) -> None:
    recipe = find_recipe("grpo", [f"model={tiny}", *SMALL])
    assert fit_to_models(recipe).recipe == recipe
