"""A group as a tree, and what a budget leaves after each turn, by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from posttrain.components.environments import Episode
from posttrain.components.rollouts._requested import Requested
from posttrain.runs.store import RunStore, rollout_rows
from posttrain.types import Segment, Task, Trajectory
from posttrain.viewer.branches import add_turns, as_tree
from tests.runs.made_runs import RECIPE
from tests.viewer.looking import Page, browser


def rollout(sample: int, parent: int | None, texts: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A page's rollout without its prompt, and its row."""
    own = [{"actor": "policy", "length": len(text), "turn": 0, "text": text} for text in texts]
    row = {
        "sample": sample,
        "segments": [{"actor": "prompt", "length": 1, "turn": 0}, *own],
        "token_ids": [1, *"".join(texts).encode()],
        "info": None,
    }
    return {"sample": sample, "parent": parent, "segments": own, "left_out": 0}, row


def tree(*made: tuple[dict[str, Any], dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Sample, level and shared tokens, in order."""
    found = as_tree([page for page, _ in made], [row for _, row in made], opened=True)
    return [(page["sample"], page["level"], page["shared_tokens"]) for page in found]


def test_rollouts_stand_below_those_that_they_branched_off() -> None:
    first, other = rollout(0, None, ["ab", "c"]), rollout(1, None, ["x"])
    third, fourth = rollout(2, 0, ["ab", "d"]), rollout(3, 2, ["ab", "d", "e"])
    assert tree(first, other, third, fourth) == [(0, 0, 0), (2, 1, 2), (3, 2, 3), (1, 0, 0)]


def test_a_parent_on_another_page_takes_nothing_out() -> None:
    assert tree(rollout(8, 0, ["ab"]), rollout(9, 8, ["ab", "c"])) == [(8, 1, 0), (9, 2, 2)]


def test_other_tokens_of_the_same_length_are_not_shared() -> None:
    assert tree(rollout(0, None, ["ab"]), rollout(1, 0, ["ac"])) == [(0, 0, 0), (1, 1, 0)]


def test_a_circle_hides_no_rollout() -> None:
    assert sorted(tree(rollout(0, 1, ["a"]), rollout(1, 0, ["a"]))) == [(0, 0, 0), (1, 0, 0)]


def test_turns_and_tokens_that_are_left() -> None:
    page, row = rollout(0, None, ["a", "b"])
    page["segments"][1]["turn"] = 1
    row["info"] = json.dumps({"valid_turns": [False, True], "tokens_left": [5, 1]})
    add_turns([page], [row], {"max_turns": 3, "budget": {"free_turns": 1}})
    assert [segment["left"] for segment in page["segments"]] == ["3 turns, 5 tokens", "2 turns, 1 token"]
    limits = [{"calls": 3, "proposals": 1}, {"calls": 1, "proposals": "?"}]
    row["info"] = json.dumps({"valid_turns": [False, True], "tokens_left": [5, 1], "limits_left": limits})
    add_turns([page], [row], {"max_turns": 3, "budget": {"free_turns": 1}})
    first, second = [segment["left"] for segment in page["segments"]]
    assert (first, second) == ("3 turns, 5 tokens, 3 calls, 1 proposal", "2 turns, 1 token, 1 call")
    assert page["in_turns"]
    row["info"] = "no JSON"
    add_turns([page], [row], {})
    assert [segment["left"] for segment in page["segments"]] == ["", ""]


def test_the_page(tmp_path: Path) -> None:
    """Two turns of a budget, and a rollout that branched off after the first."""

    def made(sample: int, second: int) -> Trajectory:
        def own(turn: int, token: int) -> Segment:
            logp = np.zeros(1, np.float32)
            return Segment(actor="policy", token_ids=np.array([token]), logp=logp, trained=True, turn=turn)

        segments = [Segment(actor="prompt", token_ids=np.array([1])), own(0, 2)]
        segments += [Segment(actor="environment", token_ids=np.array([3]), turn=1), own(1, second)]
        return Trajectory(
            task=Task(key="a", prompt="?"),
            segments=tuple(segments),
            stop_reason="length",
            sample=sample,
            parent=None if not sample else 0,
            facts=(
                Episode(valid_turns=(True, False), tokens_left=(4, 3), limits_left=({"calls": 2}, {"calls": 1})),
                Requested(requests=(request,)),
            ),
        )

    request = {"turn": 1, "role": "user", "read": [{"role": "system", "content": "Want <tea>."}], "wrote": "Hello."}
    recipe = {**RECIPE, "stages": {"rl": {"kind": "rl", "rollout": {"kind": "turns", "max_turns": 5}}}}
    with RunStore.create(tmp_path, "branched", recipe) as store:
        store.log_metrics(1, "rl", 1, {})
        store.write_rollouts(1, rollout_rows([made(0, 4), made(1, 5)], groups=[0, 0], stage="rl"))
    found = Page(browser(tmp_path).get("/runs/branched-1/steps/1/groups/0").text)
    assert "policy, turn 0, 4 turns, 4 tokens, 2 calls left, valid" in found.text
    assert "policy, turn 1, 3 turns, 3 tokens, 1 call left, not valid" in found.text
    hidden = found.with_class("hidden-facts")
    assert len(hidden) == 2 and not any("open" in attributes for attributes in hidden)
    assert "What user read and wrote, turn 1, hidden from the policy" in found.text
    assert "Want <tea>." in found.text and "requests" not in found.text
    assert "environment, turn 1" in found.text
    assert "rollout 1, branched off 0" in found.text and "2 tokens as in rollout 0" in found.text
    assert [a["style"] for a in found.with_class("branch")] == ["--level:1"]


def test_turns_count_by_actor_and_have_their_state_and_what_others_read() -> None:
    """Two agents alternate and count together: the record has turns 0 and 2 of one, and 1 of another."""
    page, row = rollout(0, None, ["a", "b", "c"])
    for place, segment in enumerate(page["segments"]):
        segment.update(turn=place, actor="bob" if place == 1 else "policy")
    page["segments"].append({"actor": "environment", "length": 1, "turn": 2, "text": "seen"})
    row["segments"] = [row["segments"][0], *[dict(segment) for segment in page["segments"]]]
    asked = {"turn": 2, "role": "user", "read": [{"role": "system", "content": "Your goal is tea."}], "wrote": "Hello."}
    row["info"] = json.dumps({"valid_turns": [True, False, True], "requests": [asked, "no request"]})
    add_turns([page], [row], {})
    assert [segment["turn"] for segment in page["segments"]] == [0, 0, 1, 2]
    assert [segment["valid"] for segment in page["segments"]] == [True, False, True, None]
    assert [len(segment["requests"]) for segment in page["segments"]] == [0, 0, 1, 0]
    assert page["segments"][2]["requests"][0]["read"] == [{"role": "system", "text": "Your goal is tea."}]


def test_limits_and_states_of_an_agent_of_a_game_are_those_of_its_own_turns() -> None:
    page, row = rollout(0, None, ["a", "b"])
    for place, segment in enumerate(page["segments"]):
        segment["turn"] = 2 * place + 1
    row["info"] = json.dumps({"valid_turns": [True, False], "tokens_left": [9, 4]})
    add_turns([page], [row], {"max_turns": 6})
    assert [segment["turn"] for segment in page["segments"]] == [0, 1]
    assert [segment["left"] for segment in page["segments"]] == ["4 turns, 9 tokens", "2 turns, 4 tokens"]
    assert [segment["valid"] for segment in page["segments"]] == [True, False]
