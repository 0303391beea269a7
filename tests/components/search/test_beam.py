"""Beam search by value: rounds by hand, a misleading first line, ends and limits, the ids that were sampled."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from posttrain.components.search import Found, Search
from posttrain.components.search.beam import Beam
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Completion
from tests.components.search.lines import TASK, Lines, never


class Stopping(Lines):
    """A writer that heeds stop strings, as engines do: the match is kept in the ids and cut from the text."""

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        return [self._stopped(c, sampling.stop) for c in await super().sample(token_ids, n, sampling, vectors)]

    def _stopped(self, completion: Completion, stops: Sequence[str]) -> Completion:
        (stop,) = stops
        text, found, _ = completion.text.partition(stop)
        if not found:
            return completion
        cut = slice(len(text) + len(stop))
        ids, logp = completion.token_ids[cut], completion.logp[cut]
        return replace(completion, token_ids=ids, logp=logp, text=text, stop_reason="stop")


def answer(beam: Beam, script: Mapping[str, Sequence[str]], values: Mapping[str, float]) -> tuple[Found, Stopping]:
    lines = Stopping(script, values)
    return asyncio.run(beam.search(TASK, {"policy": lines, "value": lines}, never)), lines


SCRIPT = {
    "P:": ["a\n", "b\n", "c\n", "a\n"],
    "P:a\n": ["x", "y\n"],
    "P:b\n": ["z\n", "z\n"],
    "P:a\ny\n": ["1", "2"],
    "P:b\nz\n": ["3", "4"],
}
VALUES = {
    "": 0.0,
    "a\n": 0.5,
    "b\n": 0.7,
    "c\n": 0.1,
    "a\nx": 0.6,
    "a\ny\n": 0.4,
    "b\nz\n": 0.3,
    "a\ny\n1": 1.7,
    "a\ny\n2": -0.5,
    "b\nz\n3": 1.2,
    "b\nz\n4": 0.0,
}


def test_rounds_by_hand() -> None:
    """Round 1: of a, b, c (a came twice) b and a are kept. Round 2: x has ended and y stays open, z is third and goes.
    Round 3: 1 and 2 end, and 1 is best: values beyond 1 are distinguished.
    """
    found, lines = answer(Beam(width=2, samples=2), SCRIPT, VALUES)
    assert lines.asked == ["P:"] * 4 + ["P:b\n"] * 2 + ["P:a\n"] * 2 + ["P:a\ny\n"] * 2
    assert [t.completion for t in found.trajectories] == ["a\nx", "a\ny\n1", "a\ny\n2"]
    assert found.values == (0.6, 1.7, -0.5)
    assert found.best.completion == "a\ny\n1"
    # lines of 2 tokens, but x and 1 and 2 with their end token: also 2; z as well
    assert found.statistics == {
        "rollouts": 3.0,
        "best_after": 2.0,
        "lines": 10.0,
        "rounds": 3.0,
        "sampled_tokens": 20.0,
    }
    assert [t.stop_reason for t in found.trajectories] == ["stop"] * 3
    assert len(lines.scored) == len(set(lines.scored)), "the same tokens are read once"


def test_a_wider_beam_goes_on_from_what_was_dropped() -> None:
    found, _ = answer(Beam(width=3, samples=2), {**SCRIPT, "P:c\n": ["5", "6"]}, {**VALUES, "c\n5": 0.2, "c\n6": 0.3})
    assert {"b\nz\n3", "b\nz\n4"} <= {t.completion for t in found.trajectories}
    assert found.best.completion == "a\ny\n1"


def test_values_lead_away_from_a_likely_wrong_prefix() -> None:
    """A writer that takes the wrong first line three times in four: the greedy way is wrong, the values know."""
    script = {"P:": ["l\n", "l\n", "l\n", "r\n"], "P:l\n": ["0", "1"], "P:r\n": ["1", "0"]}
    values = {"l\n": 0.1, "r\n": 0.9, "l\n0": 0.0, "l\n1": 0.0, "r\n1": 1.0, "r\n0": 0.0}
    assert script["P:"][0] + script["P:l\n"][0] == "l\n0"
    found, lines = answer(Beam(width=1, samples=4), script, values)
    assert found.best.completion == "r\n1"
    assert "P:l\n" not in lines.asked
    wide, _ = answer(Beam(width=2, samples=2), script, values)
    assert wide.best.completion == "r\n1" and len(wide.trajectories) == 4


def test_segments_are_the_lines_as_they_were_sampled() -> None:
    found, _ = answer(Beam(width=2, samples=2), SCRIPT, VALUES)
    first, second, third = found.trajectories
    assert [s.text for s in second.segments] == ["P:", "a\n", "y\n", "1"]
    assert [s.actor for s in second.segments] == ["prompt", "policy", "policy", "policy"]
    assert bytes(second.segments[3].token_ids.tolist()) == b"1\0", "the end token is the last line's"
    assert second.behavior_logp.tolist() == [-3.0, -4.0, -5.0, -6.0, -7.0, -8.0]
    assert first.segments[1] is second.segments[1] and second.segments[2] is third.segments[2]


def test_limits_end_a_rollout() -> None:
    """Four tokens are two lines; a line that fills them is the last one even if it is whole."""
    script = {"P:": ["a\n"], "P:a\n": ["b\n"]}
    beam = Beam(width=1, samples=1, sampling=Sampling(max_tokens=4))
    found, _ = answer(beam, script, {"a\n": 0.0, "a\nb\n": 0.0})
    assert [(t.completion, t.stop_reason) for t in found.trajectories] == [("a\nb\n", "length")]
    found, _ = answer(replace(beam, sampling=Sampling(max_tokens=3)), script, {"a\n": 0.0, "a\nb": 0.0})
    assert [(t.completion, t.stop_reason) for t in found.trajectories] == [("a\nb", "length")]


def test_after_the_last_round_open_prefixes_are_answers_only_if_nothing_ended() -> None:
    script = {"P:": ["a\n", "b\n"], "P:a\n": ["c\n", "d\n"], "P:b\n": ["e", "f\n"]}
    values = {"a\n": 1.0, "b\n": 0.5, "a\nc\n": 0.9, "a\nd\n": 0.8, "b\ne": 0.1, "b\nf\n": 0.0}
    found, _ = answer(Beam(width=2, samples=1, rounds=1), script, values)
    assert [(t.completion, t.stop_reason) for t in found.trajectories] == [("a\n", "length"), ("b\n", "length")]
    found, _ = answer(Beam(width=2, samples=2, rounds=2), script, values)
    assert [t.completion for t in found.trajectories] == ["b\ne"]


def test_what_it_requests() -> None:
    beam = Beam(value_role="critic")
    assert beam.roles == {"policy", "critic"} and not beam.uses_rewards
    assert (beam.width, beam.samples, beam.rounds, beam.temperature) == (3, 3, 20, 1.0)
    with pytest.raises(UserError, match="the search uses the role 'critic'"):
        asyncio.run(beam.search(TASK, {"policy": Stopping(SCRIPT)}))
    with pytest.raises(ValidationError, match="use stop_token_ids"):
        Beam(sampling=Sampling(stop=("\n",)))
    with pytest.raises(ValidationError, match="at least 1 character"):
        Beam(delimiter="")
    assert TypeAdapter(Search).validate_python("beam") == Beam()
