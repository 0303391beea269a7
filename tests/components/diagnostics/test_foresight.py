"""Rounds of play and rules with a small model of random weights, and with transitions by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.foresight import ROWS, RulesOfActions
from posttrain.components.environments import Episode, Verdict
from posttrain.components.environments.foreseen import Foreseen
from posttrain.components.environments.workshop import Workshop
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.episodes import Episodes
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.types import Segment, Task, Trajectory

BEHIND = Turns(environment=Foreseen(environment=Workshop()), max_turns=3, sampling=Sampling(max_tokens=2))


def trajectory(*turns: tuple[str, str, str], solved: bool = False) -> Trajectory:
    """Turns as state, action, and the observation after it, with the state of the next turn."""
    ids, segments = np.zeros(1, np.int64), [Segment(actor="prompt", token_ids=np.zeros(1, np.int64))]
    for turn, (state, action, seen) in enumerate(turns):
        segments.append(Segment(actor="policy", token_ids=ids, turn=turn, state_key=state, text=action))
        if seen:
            segments.append(Segment(actor="environment", token_ids=ids, turn=turn + 1, text=seen))
    episode = Episode(verdict=Verdict(value=float(solved), solved=solved))
    task = Task(key="a", prompt="")
    return Trajectory(task=task, segments=tuple(segments), stop_reason="environment", facts=(episode,))


def test_transitions_by_hand() -> None:
    """The last action counts where it solved the task; an action that rules refused was not carried out."""
    made = trajectory(("dark", "cut", "fails dark"), ("dark", "light", "bright"), ("bright", "cut", ""), solved=True)
    found = RulesOfActions(rollout=BEHIND, tasks=Episodes(), fails="^fails")._transitions(made, ())
    assert [(t.action, t.worked) for t in found] == [("cut", False), ("light", True), ("cut", True)]
    by_state = RulesOfActions(rollout=BEHIND, tasks=Episodes())
    assert by_state._transitions(made, ()) == found, "a state that does not change is a failure"
    assert [t.action for t in by_state._transitions(made, ("cut if dark",))] == ["light", "cut"]
    lost = trajectory(("dark", "cut", "dark"), ("dark", "light", ""))
    assert [t.action for t in by_state._transitions(lost, ())] == ["cut"]


def test_rounds_repeat_and_leave_the_weights_alone(tmp_path: Path) -> None:
    assert ROWS == (277,)
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    subject = Subject(
        name="tiny",
        load=lambda: load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")),
        serve=lambda policy: Native().serve(policy, 0),
    )
    diagnostic = RulesOfActions(
        rollout=BEHIND, tasks=Episodes(size=4), rounds=1, episodes=2, tested=2, conditions=1, fails="^fails"
    )
    finding = diagnostic.examine(subject)
    assert finding.values["weights_unchanged"] and finding.values["rounds"][0]["rules"] == 0
    assert finding.values["failures"] == finding.values["transitions"] == 4, "random bytes are no actions"
    assert diagnostic.examine(subject).values == finding.values


def test_bad_settings_are_refused() -> None:
    nothing = Subject(name="x", load=lambda: None, serve=lambda policy: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UserError, match="need 120 tasks, got 16"):
        RulesOfActions(rollout=BEHIND, tasks=Episodes(size=16)).examine(nothing)
    with pytest.raises(ValueError, match="no pattern"):
        RulesOfActions(rollout=BEHIND, tasks=Episodes(), fails="(")
