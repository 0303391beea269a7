"""A record that was edited, or comes from elsewhere: a sentence with the file, never a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.errors import UserError
from posttrain.runs.checkpoints import newest
from posttrain.runs.journal import read_lines, sound_lines
from posttrain.runs.pilot import observed_stds
from posttrain.runs.snapshot import _state

STATE: dict[str, Any] = {
    "step": 1, "stage": 0, "steps_done": 1, "roll_backs": 0, "healthy": True, "threads": 1, "roles": ["policy"],
    "versions": {"policy": 1}, "learners": {"policy": {"updates": 1}}, "memory": {}, "position": {"metrics.jsonl": 9},
}  # fmt: skip


def state_of(folder: Path, text: str) -> dict[str, Any]:
    (folder / "state.json").write_text(text)
    return _state(folder)


def test_a_good_state_is_read(tmp_path: Path) -> None:
    assert state_of(tmp_path, json.dumps(STATE)) == STATE


WRONG = [None, "one", [1], {"a": [1]}, -1, 1.5, "missing"]
RIGHT = [("memory", {"a": [1]})]


@pytest.mark.parametrize(("key", "value"), [(k, v) for k in STATE for v in WRONG if (k, v) not in RIGHT])
def test_a_state_of_another_shape_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    state = {k: v for k, v in STATE.items() if k != key} if value == "missing" else {**STATE, key: value}
    with pytest.raises(UserError, match=r"state\.json is not the state of a run") as refused:
        state_of(tmp_path, json.dumps(state))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("threads", [0, 1_000_000])
def test_threads_that_no_machine_has_are_refused(tmp_path: Path, threads: int) -> None:
    with pytest.raises(UserError, match=r"state\.json is not the state of a run: threads"):
        state_of(tmp_path, json.dumps({**STATE, "threads": threads}))


def test_the_recipe_in_a_state_has_a_depth_too(tmp_path: Path) -> None:
    text = json.dumps({**STATE, "recipe": '{"a":' * 150 + "1" + "}" * 150})
    with pytest.raises(UserError, match=r"state\.json is not the state of a run: nested too deeply"):
        state_of(tmp_path, text)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000, '{"step": 1, "step": 2}', "\x00"])
def test_what_is_no_state_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"state\.json is not the state of a run"):
        state_of(tmp_path, text)


@pytest.mark.parametrize(
    "line", ["[]", "{}", '{"step": "1"}', '{"step": null}', '{"step": true}', "[" * 100_000, "nul"]
)
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "stage": "rl"}}\n{line}\n{{"step": 2, "stage": "rl"}}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl line 2 is not an entry of a run"):
        read_lines(path)
    assert [entry["step"] for entry in sound_lines(path)] == [1, 2]


def test_a_manifest_of_any_depth_is_no_checkpoint(tmp_path: Path) -> None:
    step = tmp_path / "step_000001_0"
    step.mkdir()
    for text in ("[" * 100_000, "\udcff", '{"number": 1, "number": 2}'):
        (step / "manifest.json").write_text(text, errors="surrogateescape")
        assert newest(tmp_path, lambda path, why: None, lambda path: True) is None


def test_a_pilot_that_is_no_comparison_is_named(tmp_path: Path) -> None:
    for text in ("[]", '{"contenders": 3}', '{"contenders": [{}], "measures": ["a"]}', "[" * 100_000):
        (tmp_path / "comparison.json").write_text(text)
        if text.endswith("]}"):
            assert observed_stds(tmp_path) == {}, "one contender has no differences"
        else:
            with pytest.raises(UserError, match=r"comparison\.json"):
                observed_stds(tmp_path)
