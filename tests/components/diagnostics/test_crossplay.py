"""Grounding, verification, scripted players with their best responses, and the matrix."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.crossplay import EXACT, MAPPED, RANDOM, Crossplay, Player, grounded
from posttrain.datasets.meeting import State, best_response, scripted, starts, towards
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.types import Completion

LEGAL = ("0 left", "0 stay", "1 left")


def subject(name: str) -> Subject:
    def unused(*_: Any) -> Any:
        raise AssertionError("no model is loaded")

    return Subject(name=name, load=unused, serve=unused)


@pytest.mark.parametrize(
    ("text", "action", "kind"),
    [
        ("I think so.\nAction: 1 left\nDone", "1 left", EXACT),
        (" 0 stay", "0 stay", EXACT),
        ("Action: go left, 1", "0 left", MAPPED),
        ("STAY", "0 stay", MAPPED),
        ("", None, RANDOM),
        ("zzz", None, RANDOM),
    ],
)
def test_actions_are_grounded(text: str, action: str | None, kind: str) -> None:
    """``go left, 1``: as similar to ``0 left`` as to ``1 left``, of which the first is taken."""
    assert grounded(text, LEGAL) == (action, kind)


def test_a_game_by_hand() -> None:
    state = State(places=(0, 3)).after("3 left")
    assert state.places == (4, 3) and state.heard == (None, 3) and state.player == 1 and not state.over
    assert state.after("2 right").met and state.after("2 right").over
    assert not State(places=(0, 2), turn=6).met and State(places=(0, 2), turn=6).over
    assert len(state.legal) == 15 and "cell 3 of a ring of 5" in state.shown() and "last word: 3" in state.shown()
    assert [towards(0, goal, 5) for goal in range(5)] == ["stay", "right", "right", "left", "left"]


def test_best_responses() -> None:
    """A ring of 3 and a single action: of the two cells where a partner may stand, one can be hit."""
    stay = scripted("cell_0", 3)
    assert stay is not None and scripted("cell_3", 3) is None and scripted("anna", 3) is None
    assert best_response(stay, 0, 3, 1) == 0.5
    assert best_response(stay, 0, 5, 6) == 1.0, "cell 0 is reached by both in three moves each"
    follow = scripted("follow", 5)
    assert follow is not None and best_response(follow, 0, 5, 6) == 1.0


def test_conventions_meet_themselves_and_not_each_other() -> None:
    found = Crossplay(games=20).examine(subject("cell_0"), subject("cell_2"), subject("random")).values
    matrix = np.array(found["matrix"])
    assert matrix[0, 0] == matrix[1, 1] == 1.0 and matrix[0, 1] < 0.8 and matrix[1, 0] < 0.8
    assert found["gaps"]["cell_0"]["cell_0"] == 0.0
    assert found["gaps"]["cell_0"]["random"] == pytest.approx(1.0 - matrix[2, 0])
    assert all(shares[EXACT] == 1.0 for shares in found["grounding"].values())
    assert found["self"] == pytest.approx(np.diag(matrix).mean())


def test_two_copies_have_equal_entries() -> None:
    found = Crossplay(games=30).examine(subject("follow"), subject("follow")).values
    assert len({value for row in found["matrix"] for value in row}) == 1


class Given:
    """A model that writes given texts, and keeps what it read."""

    context = 10_000

    def __init__(self, *texts: str) -> None:
        self.texts, self.read = list(texts), list[str]()

    def bind(self, *key: Any) -> "Given":
        return self

    def encode(self, prompt: str) -> Any:
        self.read.append(prompt)
        return np.arange(5)

    async def sample(self, token_ids: Any, n: int, sampling: Sampling) -> list[Completion]:
        text = self.texts.pop(0)
        nothing = np.zeros(0)
        return [Completion(token_ids=nothing, logp=nothing, stop_reason="stop", version=0, text=text)]  # type: ignore[arg-type]


def acted(diagnostic: Crossplay, *texts: str) -> tuple[str, str, list[str]]:
    model: Any = Given(*texts)
    player = Player(name="model", server=model)
    state, rng = State(places=(0, 2)), np.random.default_rng(0)
    action, kind = asyncio.run(diagnostic._act(player, state, ["3 left"], rng, (0, 0, 0, 0)))
    assert not model.texts, "all texts were asked for"
    return action, kind, model.read


def test_a_verifier_refuses_at_most_as_often_as_allowed() -> None:
    diagnostic = Crossplay(verifications=2)
    assert acted(diagnostic, "1 left", "Verification: Okay")[:2] == ("1 left", EXACT)
    action, kind, read = acted(diagnostic, "1 left", "no", "1 left", "no", "2 stay")
    assert (action, kind) == ("2 stay", EXACT)
    assert "1 left" in read[0].split("Actions:")[1] and "1 left," not in read[2].split("Actions:")[1]
    assert "Not 1 left: no" in read[2] and "Your moves so far: 3 left" in read[0]


def test_a_refused_action_is_mapped_to_another() -> None:
    action, kind, _ = acted(Crossplay(verifications=1), "1 left", "no", "1 left")
    assert action != "1 left" and kind == MAPPED


def test_the_partners_intention_is_read() -> None:
    _, _, read = acted(Crossplay(infers=True), " cell 4", "1 left")
    assert read[0].endswith("Your partner intends:") and "Your partner intends: cell 4\n" in read[1]


def test_a_model_plays_and_a_run_repeats(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=1024)
    tiny = Subject(
        name="tiny",
        load=lambda: load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")),
        serve=lambda policy: Native().serve(policy, 0),
    )
    diagnostic = Crossplay(games=2, sampling=Sampling(max_tokens=4))
    finding = diagnostic.examine(tiny, subject("cell_1"))
    assert diagnostic.examine(tiny, subject("cell_1")).values == finding.values
    shares = finding.values["grounding"]["tiny"]
    assert sum(shares.values()) == pytest.approx(1.0) and len(starts(5, 6)) == 20
    assert len(finding.lines) == 2 + 2 + 1 + 2 + 1
