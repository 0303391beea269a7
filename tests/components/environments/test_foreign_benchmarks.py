"""Adapters of benchmarks by stand-ins of the same interface: tau2, BFCL, ScienceWorld and NetHack."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posttrain.components.environments._foreign import Adapter, bfcl_worker, make, split, tau2
from posttrain.errors import UserError

BFCL = {
    "bfcl_eval/__init__.py": "",
    "bfcl_eval/constants/executable_backend_config.py": """
MULTI_TURN_FUNC_DOC_FILE_MAPPING = {"Files": "files.json"}
CLASS_FILE_PATH_MAPPING = {"Files": "bfcl_eval.files"}
STATELESS_CLASSES = []
""",
    "bfcl_eval/files.py": """
class Files:
    def _load_scenario(self, config, long_context=False):
        self.names = list(config["names"])
    def touch(self, name):
        self.names.append(name)
        return {"made": name}
""",
    "bfcl_eval/eval_checker/multi_turn_eval/multi_turn_utils.py": """
import json
from bfcl_eval.files import Files
KEPT = {}
def execute_multi_turn_func_call(calls, config, classes, name, task, long_context=False):
    if name not in KEPT:
        KEPT[name] = Files()
        KEPT[name]._load_scenario(config["Files"])
    return [json.dumps(eval("made." + call, {"made": KEPT[name]})) for call in calls], {"Files": KEPT[name]}
""",
    "bfcl_eval/eval_checker/multi_turn_eval/multi_turn_checker.py": """
def state_checker(own, other):
    return {"valid": all(vars(own[name]) == vars(other[name]) for name in other)}
def response_checker(own, other, turn):
    return {"valid": set(other) <= set(own)}
""",
}
TOUCH = {"type": "dict", "properties": {"name": {"type": "string"}, "n": {"type": "float"}}, "required": ["name"]}


def call(tool: str, /, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


@pytest.fixture
def bfcl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, text in BFCL.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in ("constants", "eval_checker", "eval_checker/multi_turn_eval"):
        (tmp_path / "bfcl_eval" / folder / "__init__.py").write_text("")
    row = {"id": "a_0", "question": [[{"role": "user", "content": "Make a."}], [{"role": "user", "content": "And b."}]]}
    row |= {"initial_config": {"Files": {"names": []}}, "involved_classes": ["Files"], "excluded_function": ["rm"]}
    docs = [{"name": name, "parameters": TOUCH, "response": {}} for name in ("touch", "rm")]
    gold = {"id": "a_0", "ground_truth": [["touch('a')"], ["touch(name='b')"]]}
    data = tmp_path / "bfcl_eval" / "data"
    for name, rows in (
        ("BFCL_v4_multi_turn_base.json", [row]),
        ("possible_answer/BFCL_v4_multi_turn_base.json", [gold]),
        ("multi_turn_func_doc/files.json", docs),
    ):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = make("bfcl:multi_turn_base", {}, "text", "hermes")
    yield made
    made.close()


def test_bfcl(bfcl: Adapter) -> None:
    first = bfcl.reset(3, {}).text
    assert first.endswith("Make a.") and '"touch"' in first and '"rm"' not in first and '"number"' in first
    turns = []
    while True:
        turns.append(bfcl.solution() or "")
        seen = bfcl.step(turns[-1])
        if seen.terminated:
            break
    assert turns == [call("touch", name="a"), "Done.", call("touch", name="b"), "Done."]
    assert bfcl.value() == 1.0
    bfcl.reset(3, {})
    assert bfcl.step("Nothing to do.").text == "And b."
    assert not bfcl.step(call("touch", nome="b")).valid
    assert bfcl.step("Done.").terminated and bfcl.value() == 0.0
    bfcl.reset(3, {})
    assert "no tool '_load_scenario'" in bfcl.step(call("_load_scenario", config={})).text


def test_answers_of_bfcl_that_json_lacks_are_texts() -> None:
    """As the package writes them, with which they are compared."""
    assert bfcl_worker.written({"result": 2}) == '{"result": 2}'
    assert bfcl_worker.written({"result": 2j}) == "{'result': 2j}"
    assert (bfcl_worker.written("a"), bfcl_worker.written(None)) == ("a", "None")


def test_bfcl_is_refused_without_its_package_or_category() -> None:
    with pytest.raises(UserError, match="no such category"):
        make("bfcl:web", {}, "text", "hermes")
    with pytest.raises(UserError, match="give the interpreter that has bfcl-eval"):
        make("bfcl:multi_turn_base", {"python": "/no/python"}, "text", "hermes")
    with pytest.raises(UserError, match="pip install bfcl-eval"):
        make("bfcl:multi_turn_base", {}, "text", "hermes")


@pytest.mark.usefixtures("bfcl")
def test_bfcl_is_refused_without_its_data(tmp_path: Path) -> None:
    (tmp_path / "bfcl_eval" / "data" / "possible_answer" / "BFCL_v4_multi_turn_base.json").unlink()
    with pytest.raises(UserError, match=r"no file data/possible_answer/BFCL_v4_multi_turn_base.json; pip install bfcl"):
        make("bfcl:multi_turn_base", {}, "text", "hermes")


class Domain:
    """The interface of an environment of tau2: an order that can be cancelled."""

    user_tools = None

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def get_tools(self) -> list[Any]:
        parameters = {"type": "object", "properties": {"order": {"type": "string"}}}
        return [
            SimpleNamespace(name=name, openai_schema={"function": {"name": name, "parameters": parameters}})
            for name in ("cancel", "look")
        ]

    def get_policy(self) -> str:
        return "Be kind."

    def set_state(self, data: Any, actions: Any, messages: list[Any]) -> None:
        self.begun = (data, actions)

    def make_tool_call(self, name: str, requestor: str, order: str) -> str:
        if order == "none":
            raise ValueError("no such order")
        self.cancelled += [order] if name == "cancel" else []
        return f"{name} {order}"

    def to_json_str(self, value: Any) -> str:
        return str(value)

    def sync_tools(self) -> None:
        pass

    def get_db_hash(self) -> str:
        return str(sorted(self.cancelled))

    def get_user_db_hash(self) -> None:
        return None

    def run_env_assertion(self, assertion: Any, raise_assertion_error: bool) -> bool:
        return bool(assertion == self.cancelled)


def task(name: str, basis: list[str]) -> Any:
    actions = [SimpleNamespace(name="cancel", arguments={"order": order}) for order in (name, "none")]
    criteria = SimpleNamespace(
        actions=actions, reward_basis=basis, env_assertions=[[name]], communicate_info=["1,200 euros"]
    )
    scenario = SimpleNamespace(instructions=f"Cancel {name}.")
    return SimpleNamespace(id=name, evaluation_criteria=criteria, initial_state=None, user_scenario=scenario)


def test_tau2(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {name: task(name, basis) for name, basis in (("a", ["DB", "COMMUNICATE"]), ("b", ["DB", "ENV_ASSERTION"]))}
    monkeypatch.setattr(tau2, "loaded", lambda domain: (Domain(), tasks))
    game = make("tau2:retail", {}, "text", "hermes")
    assert list(game.tools) == ["cancel", "look"]  # type: ignore[attr-defined]
    assert game.reset(2, {}).text == "Be kind.\n\nCancel a."
    assert [game.step(game.solution() or "").terminated for _ in range(3)] == [False, False, True]
    assert game.value() == 1.0
    game.reset(0, {"task_id": "b"})
    assert game.step(call("cancel", order="a")).text == "cancel a"
    assert "no such order" in game.step(call("cancel", order="none")).text
    assert game.step("done").terminated and game.value() == 0.0
    game.reset(2, {})
    game.step(call("cancel", order="a"))
    game.step("You get 1200 dollars.")
    assert game.value() == 0.0, "what is to be communicated was not"
    with pytest.raises(UserError, match="no task 'z'"):
        game.reset(0, {"task_id": "z"})


class Science:
    """ScienceWorld's interface."""

    task_names = ("boil", "melt")

    def __init__(self, task: str, envStepLimit: int) -> None:
        self.limit = envStepLimit

    def get_max_variations(self, task: str) -> int:
        return 4

    def load(self, *given: Any, **more: Any) -> None:
        self.loaded, self.score = given, 0

    def reset(self) -> tuple[str, dict[str, Any]]:
        return "A room.", {"valid": ["look", "heat"], "score": 0}

    def get_gold_action_sequence(self) -> list[str]:
        return ["heat"]

    def get_task_description(self) -> str:
        return "Boil water."

    def step(self, line: str) -> tuple[str, int, bool, dict[str, Any]]:
        known = line in ("look", "heat")
        self.score += 100 * (line == "heat")
        return ("Yes." if known else "No known action matches."), 0, line == "heat", {"valid": [], "score": self.score}

    def close(self) -> None:
        pass


def test_scienceworld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scienceworld", SimpleNamespace(ScienceWorldEnv=Science))
    game = make("scienceworld:boil", {"steps": 9}, "text", "hermes")
    first = game.reset(6, {})
    assert (first.text, first.legal) == ("Boil water.\nA room.", ["look", "heat"])
    assert game._made.loaded[:2] == ("boil", 2)  # type: ignore[attr-defined]
    assert not game.step("").valid and not game.step("fly").valid
    last = game.step(game.solution() or "")
    assert (last.reward, last.terminated, last.legal) == (1.0, True, None)
    with pytest.raises(UserError, match="there are boil, melt"):
        make("scienceworld:fly", {}, "text", "hermes")


def test_nethack_is_seeded_by_its_own_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    seeded: list[Any] = []

    class Dungeon(gymnasium.Env):  # type: ignore[name-defined, misc]
        action_space = gymnasium.spaces.Discrete(3)
        observation_space = gymnasium.spaces.Discrete(3)
        nethack = SimpleNamespace(set_current_seeds=lambda core, disp: seeded.append((core, disp)))

        def seed(self, core: int, disp: int, reseed: bool) -> None:
            seeded.append((core, disp, reseed))

        def reset(self, seed: Any = None, options: Any = None) -> tuple[int, dict[str, Any]]:
            return 1, {}

    gymnasium.register("Dungeon-v0", entry_point=Dungeon)
    game = make("Dungeon-v0", {}, "numbers", "hermes")
    game.reset(7, {})
    game.reseed(8)
    assert seeded == [(7, 7, False), (8, 8)]
    assert split("nle:NetHackScore-v0") == ("gymnasium", "nle:NetHackScore-v0")
