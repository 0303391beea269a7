"""Stored turns: what each has, bounds, draws, and JSON."""

import json

import numpy as np

from posttrain.stages.stored import StoredTurns
from posttrain.types import Score, Segment, Task, Trajectory

TASK = Task(key="t", prompt="p")


def episode(turns: int, value: float = 1.0, first: int = 10, *, status: str = "ok") -> Trajectory:
    """A prompt of two tokens, and turns of two tokens with an observation of one token between them."""
    segments = [Segment(actor="prompt", token_ids=np.array([1, 2]))]
    for turn in range(turns):
        ids = np.array([first + turn, 3])
        logp = np.array([-0.5, -0.25], np.float32)
        own = Segment(actor="policy", token_ids=ids, logp=logp, trained=True, turn=turn, reward=0.125 * turn)
        segments += [own, Segment(actor="environment", token_ids=np.array([7]), turn=turn + 1)]
    return Trajectory(
        task=TASK,
        segments=tuple(segments[: 2 * turns]),
        stop_reason="environment",
        score=Score(value=value, status=status),  # type: ignore[arg-type]
    )


def test_a_turn_has_its_context_its_reward_and_what_follows() -> None:
    stored = StoredTurns(capacity=10)
    stored.add([episode(2)])
    first, last = (stored._episodes[0][t] for t in (0, 1))
    assert first.context.tolist() == [1, 2] and first.action.tolist() == [10, 3] and first.reward == 0.0
    assert first.following is not None and first.following.tolist() == [1, 2, 10, 3, 7]
    assert last.context.tolist() == [1, 2, 10, 3, 7] and last.action.tolist() == [11, 3]
    assert last.reward == 1.125 and last.following is None, "the score is that of the last turn"
    assert last.logp.tolist() == [-0.5, -0.25] and last.source == "policy" and last.task == "t"


def test_the_oldest_episodes_are_dropped_and_what_has_no_score_is_not_stored() -> None:
    stored = StoredTurns(capacity=5)
    stored.add([episode(2, first=10), episode(2, first=20), episode(2, first=30)])
    assert len(stored) == 4 and stored._episodes[0][0].action[0] == 20
    stored.add([episode(2, float("nan"), status="error")])
    assert len(stored) == 4 == sum(len(e["turns"]) for e in stored.packed)


def test_json_gives_the_same_turns_and_the_same_draws() -> None:
    stored = StoredTurns(capacity=100)
    stored.add([episode(3, first=10), episode(1, 0.0, first=20)])
    again = StoredTurns(capacity=100, packed=json.loads(json.dumps(stored.packed)))
    for one, two in zip(*(s.draw(50, np.random.default_rng(3)) for s in (stored, again)), strict=True):
        assert one.action.tolist() == two.action.tolist() and one.reward == two.reward
        assert one.logp.dtype == two.logp.dtype and one.logp.tolist() == two.logp.tolist()
    assert {turn.action[0] for turn in stored.draw(100, np.random.default_rng(0))} == {10, 11, 12, 20}
