"""Code of the user's: loaded without a trace on the import path, run with consent only."""

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from posttrain.cli import main
from posttrain.component import Unread, user_code
from posttrain.component.user_code import Policy, accept, allowing, find_code, load_file, require
from posttrain.components.objectives import Objective
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.recipes.files import find_recipe, to_yaml
from tests.runs.made_runs import make_run

OWN = (
    "from pathlib import Path\n"
    "Path('ran').touch()\n"
    "from posttrain.component import frozen\n"
    "from posttrain.components.objectives import Objective\n"
    "from posttrain.types import PerToken\n"
    "@frozen\n"
    "class Negative(Objective):\n"
    "    scale: float = 1.0\n"
    "    def __call__(self, tokens):\n"
    "        return PerToken(loss_T=-self.scale * tokens.logp_T)\n"
)
SCORE = "from pathlib import Path\nPath('ran').touch()\ndef score(completion):\n    return 1.0\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(user_code, "_accepted", set())
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    yield tmp_path / "work"


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        code = main(list(words))
        output = capfd.readouterr()
        return code, output.out + output.err

    return run


class TestLoading:
    def test_a_file_imports_from_beside_it_and_the_import_path_stays(self, here: Path) -> None:
        Path("package").mkdir()
        Path("package/__init__.py").write_text("from .inner import VALUE\nfrom . import other\n")
        Path("package/inner.py").write_text("import plain\nVALUE = plain.ONE + 1\n")
        Path("package/other.py").write_text("THREE = 3\n")
        Path("plain.py").write_text("ONE = 1\n")
        Path("mine.py").write_text(
            "import json, plain, package.other\nfrom package import inner\nfrom package.other import THREE\n"
            "def late():\n    from plain import ONE\n    return ONE\n"
        )
        path = list(sys.path)
        module = load_file(here / "mine.py", Path("mine.py").read_bytes())
        assert (module.plain.ONE, module.inner.VALUE, module.THREE, module.late()) == (1, 2, 3, 1)
        assert module.package.other.THREE == 3 and module.json is sys.modules["json"]
        assert sys.path == path and not {"plain", "package", "mine"} & set(sys.modules)

    def test_what_is_missing_is_reported_as_ever(self, here: Path) -> None:
        with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
            load_file(here / "mine.py", b"import no_such_thing\n")
        with pytest.raises(ModuleNotFoundError, match="absent"):
            load_file(here / "mine.py", b"import json.absent\n")

    def test_a_file_is_a_kind(self, here: Path) -> None:
        Path("mine.py").write_text(OWN)
        made = TypeAdapter(Objective).validate_python({"kind": "mine.py", "scale": 2.0})
        tree = TypeAdapter(Objective).dump_python(made, mode="json")
        assert tree == {"kind": "mine.py", "scale": 2.0}
        assert TypeAdapter(Objective).validate_python(tree) == made
        Path("two.py").write_text(OWN + OWN.replace("Negative", "Other").replace("1.0", "3.0"))
        named = TypeAdapter(Objective).validate_python("two.py:Other")
        assert (named.kind, vars(named)["scale"]) == ("two.py:Other", 3.0)
        with pytest.raises(ValidationError, match="defines 2 subclasses of Objective"):
            TypeAdapter(Objective).validate_python("two.py")

    @pytest.mark.parametrize("kind", ["unittest.__main__", "this.is.nothing", "antigravity.x", "plain.py"])
    def test_what_is_no_component_is_not_run(self, here: Path, kind: str) -> None:
        Path("plain.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
        with pytest.raises(ValidationError):
            TypeAdapter(Tasks).validate_python({"kind": kind})
        assert not Path("ran").exists() and "antigravity" not in sys.modules


class TestFinding:
    def test_files_of_code_are_found_without_running_it(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Path("mine.py").write_text("import helper\nraise SystemExit\n")
        Path("helper.py").write_text("from deeper import *\n")
        Path("deeper.py").write_text("import mine\n")
        found = find_code("mine.py:score")
        assert [file.name for file in found.files] == ["mine.py", "helper.py", "deeper.py"]
        Path("deeper.py").write_text("import mine, os\n")
        assert find_code("mine.py:score").sha256 != found.sha256, "a change of what it imports is a change"
        monkeypatch.syspath_prepend(here)
        Path("pack/inside").mkdir(parents=True)
        for name in ("pack/__init__.py", "pack/inside/__init__.py", "pack/inside/leaf.py"):
            Path(name).write_text("raise SystemExit\n")
        leaf = find_code("pack.inside.leaf")
        assert [str(f.relative_to(here)) for f in leaf.files] == [
            "pack/inside/leaf.py", "pack/inside/__init__.py", "pack/__init__.py"
        ]  # fmt: skip
        assert "pack" not in sys.modules
        assert find_code("nowhere.at_all").files == find_code("none.py").files == ()


class TestConsent:
    def test_what_is_typed_is_accepted_by_its_path(self, here: Path) -> None:
        Path("mine.py").write_text(SCORE)
        with allowing(Policy.CONSENT, command_line=["run", "grpo", "reward=mine.py:score"]):
            accept([find_code("mine.py:score")], "x")
            require("mine.py:score")
        Path("mine.py").write_text(SCORE + "# edited\n")
        with allowing(Policy.CONSENT):
            require("mine.py:score")
        with allowing(Policy.CONSENT, command_line=["resume", "runs/mine.py:score"]), pytest.raises(UserError):
            Path("other.py").write_text(SCORE + "# another\n")
            require("other.py:score")

    def test_what_was_trusted_is_accepted_by_its_bytes(self, here: Path) -> None:
        Path("mine.py").write_text(SCORE + f"# {here}\n")
        with allowing(Policy.CONSENT, trust=True):
            accept([find_code("mine.py:score")], "x")
        Path("moved.py").write_text(Path("mine.py").read_text())
        with allowing(Policy.CONSENT):
            require("moved.py:score")
            Path("mine.py").write_text(SCORE + "# changed by somebody\n")
            with pytest.raises(UserError, match="neither named on a command line here nor accepted before"):
                require("mine.py:score")

    def test_consent_survives_a_damaged_memory(self, here: Path) -> None:
        memory = here.parent / "state/posttrain/trusted-code.json"
        memory.parent.mkdir(parents=True)
        for text in ("", "[]", "[" * 100_000, '{"a": 1}', "\udcff"):
            memory.write_bytes(text.encode(errors="surrogateescape"))
            Path("mine.py").write_text(SCORE + f"# damaged {len(text)}\n")
            with allowing(Policy.CONSENT), pytest.raises(UserError):
                require("mine.py:score")
        with allowing(Policy.CONSENT, trust=True):
            require("mine.py:score")
        assert memory.stat().st_mode & 0o077 == 0

    def test_commands_that_read_run_nothing(self, here: Path) -> None:
        Path("mine.py").write_text(OWN)
        Path("mine.yaml").write_text("base: grpo\nobjective: {kind: mine.py, scale: 3.0}\n")
        with allowing(Policy.NEVER, command_line=["mine.py"]):
            recipe = find_recipe("mine.yaml")
            with pytest.raises(UserError, match="this command only reads"):
                require("mine.py")
        objective = vars(recipe.stages["rl"])["objective"]
        assert isinstance(objective, Unread) and isinstance(objective, Objective)
        assert "kind: mine.py\n      scale: 3.0" in to_yaml(recipe)
        assert not Path("ran").exists()


@pytest.fixture
def stranger(here: Path) -> Path:
    """A run that another user made, with code of theirs in it."""
    run = Path("runs/evil")
    run.mkdir(parents=True)
    (run / "mod.py").write_text(OWN.replace("Objective", "Tasks").replace("objectives", "tasks"))
    (run / "score.py").write_text(SCORE)
    Path("mod.py").write_text((run / "mod.py").read_text())
    return run


RECIPES = {
    "a kind": "base: grpo\ntasks: {kind: runs/evil/mod.py}\n",
    "a module": "base: grpo\ntasks: {kind: runs.evil.mod}\n",
    "a reward": "base: grpo\nreward: runs/evil/score.py:score\n",
    "a verifier": "base: grpo\nevaluation: {verifier: runs/evil/score.py:score}\n",
    "a base": "base: mod.py:recipe\n",
    "a world": "base: grpo\nrollout: {kind: turns, environment: {kind: foreign, source: 'runs/evil/mod.py:World'}}\n",
    "an environment": "base: corridor\nrollout: {kind: control, id: 'mod:World-v0'}\n",
}


@pytest.mark.parametrize("recipe", RECIPES)
class TestAStrangersRun:
    def test_reading_it_runs_nothing(self, stranger: Path, recipe: str, said: Callable[..., tuple[int, str]]) -> None:
        (stranger / "recipe.yaml").write_text(RECIPES[recipe])
        for words in (["show"], ["show", "--json"], ["diff"]):
            code, text = said(words[0], str(stranger), *(["grpo"] if words[0] == "diff" else []), *words[1:])
            assert code in (0, 2), text
            assert not Path("ran").exists(), words

    def test_running_it_needs_consent(self, stranger: Path, recipe: str, said: Callable[..., tuple[int, str]]) -> None:
        (stranger / "recipe.yaml").write_text(RECIPES[recipe])
        (stranger / "environment.json").write_text("{}")
        for words in (["run", str(stranger), "--dry-run"], ["resume", str(stranger)], ["eval", str(stranger)]):
            code, text = said(*words)
            assert code == 2, text
            assert not Path("ran").exists(), words
        code, text = said("run", str(stranger / "recipe.yaml"), "--dry-run")
        assert code == 2 and "names code that was neither named on a command line here nor accepted before" in text
        assert "--trust-code" in text


def test_a_recipe_that_is_python_too_is_not_run(here: Path, said: Callable[..., tuple[int, str]]) -> None:
    """The command line names the recipe's file, which must not make it code that the user named."""
    python = "class Evil(Exception): ...\nopen('ran', 'w')\n"
    Path("evil.v1").write_text(python)
    Path("both.yaml").write_text(f'base: grpo\ntasks: {{kind: ./both.yaml}}\nname: """\n{python}"""\n')
    for words in (["run", "./both.yaml", "--dry-run"], ["run", "grpo", "tasks.kind=./evil.v1", "--dry-run"]):
        code, text = said(*words)
        assert code == 2 and not Path("ran").exists(), text


@pytest.mark.slow
def test_with_consent_it_runs_and_is_not_asked_about_again(
    stranger: Path, said: Callable[..., tuple[int, str]]
) -> None:
    (stranger / "recipe.yaml").write_text(RECIPES["a reward"] + f"seed: {len(str(stranger))}\n")
    code, text = said("run", str(stranger), "--dry-run", "tasks.kind=arithmetic", "--trust-code")
    assert code == 0 and Path("ran").exists(), text
    assert said("run", str(stranger), "--dry-run")[0] == 0
    (stranger / "score.py").write_text(SCORE + "# version 2\n")
    assert said("run", str(stranger), "--dry-run")[0] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb",
    [
        ["list"],
        ["show", "grpo"],
        ["doctor"],
        ["run", "grpo", "--dry-run"],
        ["diff", "dr_grpo"],
        ["sample", "pebble", "1+1=", "--max-tokens", "1"],
        ["view"],
    ],
)
def test_python_in_the_working_folder_is_nobodys_library(here: Path, verb: list[str]) -> None:
    """Libraries try optional imports; a model folder may hold files of these names."""
    names = ("org", "_ruamel_yaml", "pynvml", "dill", "torchcomms", "a2wsgi", "json", "numpy", "sitecustomize")
    for name in names:
        Path(f"{name}.py").write_text(f"open('ran-{name}', 'w')\n")
    command = [str(Path(sys.executable).with_name("posttrain")), *verb]
    if verb == ["view"]:
        look(make_run(here, sft=1, rl=1, tasks=4), [*command, str(here), "--port", "0", "--json"])
    else:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 1), done.stderr
    assert not list(here.glob("ran-*"))


def look(run: Path, command: list[str]) -> None:
    """Have a viewer make its pages, also of a run that names a stranger's code."""
    (run / "recipe.yaml").write_text("base: grpo\ntasks: {kind: org.py}\nreward: json.py:score\n")
    viewer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert viewer.stdout is not None
        url = json.loads("".join(iter(viewer.stdout.readline, "}\n")) + "}")["url"]
        for page in ("", f"runs/{run.name}", f"runs/{run.name}/search", f"runs/{run.name}/solved"):
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(f"{url}{page}", timeout=60).read()
    finally:
        viewer.kill()
        viewer.wait()
