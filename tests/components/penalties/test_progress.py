"""Rewards of turns by hand: where they land, what was carried out, and what becomes of the score."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.environments import Episode
from posttrain.components.penalties.progress import Progress
from posttrain.signals import Signal
from posttrain.stages.rl.credit import batch_of
from posttrain.types import Group, Segment, Trajectory
from tests.builders import score, trajectory

SAID = {Signal("score", of="progress"): np.array([9.0, 0.25, -0.5, 9.0, 9.0, 1.5], np.float32)}


def played(*valid: bool, known: bool = True, lengths: tuple[int, ...] = (2, 1, 3), reward: float = 1.0) -> Trajectory:
    """Turns of these lengths, an observation before all but the first; whether each was valid, if that is `known`."""
    facts = (Episode(valid_turns=valid),) if known else ()
    segments = [Segment(actor="prompt", token_ids=np.arange(3))]
    for turn, length in enumerate(lengths):
        seen = [Segment(actor="environment", token_ids=np.arange(2), turn=turn)] if turn else []
        said = np.full(length, -1.0, np.float32)
        own = Segment(actor="policy", token_ids=np.arange(length) + 9, trained=True, logp=said, turn=turn)
        segments += [*seen, own]
    return replace(trajectory(), segments=tuple(segments), score=score(reward), facts=facts)


def test_ends_of_turns() -> None:
    assert played(known=False).turn_ends.tolist() == [1, 2, 5]
    assert played(known=False, lengths=(4,)).turn_ends.tolist() == [3]
    assert played(known=False, lengths=()).turn_ends.tolist() == []
    one = trajectory(2)
    parts = replace(one, segments=(*one.segments, replace(one.segments[1], token_ids=np.arange(1), logp=np.zeros(1))))
    assert parts.turn_ends.tolist() == [2], "two segments of one turn"


@pytest.mark.parametrize(
    ("progress", "valid", "expected"),
    [
        # c = (0.25, -0.5, 1.5), g = (1, 0, 1), and the score of 1 is taken back at the end
        (Progress(alpha=2.0, beta=0.5), [True, False, True], [0, 1.0, -1.0, 0, 0, 3.5 - 1]),
        # the last turn always counts as carried out
        (Progress(alpha=0.0, beta=0.5), [False, False, False], [0, 0, 0, 0, 0, 0.5 - 1]),
        (Progress(beta=0.0), [True, True, True], [0, 0.25, -0.5, 0, 0, 1.5 - 1]),
        # turn t of 3 times 2 - t
        (Progress(beta=0.5, early=True), [True, False, True], [0, 1.5, -0.5, 0, 0, 0 - 1]),
    ],
)
def test_rewards_of_turns_by_hand(progress: Progress, valid: list[bool], expected: list[float]) -> None:
    assert progress.in_reward(played(*valid), SAID).tolist() == pytest.approx(expected)


def test_without_an_environment_every_turn_was_carried_out() -> None:
    assert Progress(alpha=0.0).in_reward(played(known=False), SAID).tolist() == pytest.approx([0, 0.5, 0.5, 0, 0, -0.5])


def test_the_score_is_no_reward_any_more_and_turn_rewards_stay() -> None:
    """Together with what the environment gave for the second turn; a rollout without turns gets nothing."""
    one, none = played(True, False, True), played(lengths=(), reward=0.0)
    segments = tuple(replace(s, reward=-0.1) if s.trained and s.turn == 1 else s for s in one.segments)
    groups = [Group(trajectories=(replace(one, segments=segments), none))]
    signals = {Signal("score", of="progress"): (SAID[Signal("score", of="progress")], np.zeros(0, np.float32))}
    batch = batch_of(groups, signals, {"progress": Progress()}, 0.0)
    assert batch.token_rewards[0].tolist() == pytest.approx([0, 0.75, -0.6, 0, 0, 2.0])
    assert batch.return_N.tolist() == pytest.approx([2.15, 0.0])


def test_another_role() -> None:
    assert Progress(role="judge").needs == {Signal("score", of="judge")}
