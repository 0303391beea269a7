import asyncio

import numpy as np
import pytest

from posttrain.components.rollouts.recorded import Recorded
from posttrain.errors import UserError
from posttrain.signals import logp_of
from posttrain.stages.rl.collect import unaided
from posttrain.stages.rl.credit import batch_of
from posttrain.stages.rl.metrics import recorded_metrics, rollout_metrics, signal_metrics
from posttrain.types import Group, Rated, Task
from tests.builders import ScriptedSampler, info_of, score, trajectory

RATED = Task(key="t", prompt="2+2=", rated=(Rated(completion="4", rating=1.0), Rated(completion="five", rating=-0.5)))
BARE = Task(key="bare", prompt="2+2=", demonstrations=("4",))


def collect(sampler: ScriptedSampler) -> Group:
    [group] = asyncio.run(Recorded().collect(RATED, {"behavior": sampler, "policy": ScriptedSampler("policy")}))
    return group


def scored() -> Group:
    group = collect(ScriptedSampler("behavior"))
    return Group(key="t", trajectories=tuple(t.scored(score(info_of(t)["rating"])) for t in group))


def test_completions_are_taken_as_they_are_and_nothing_is_sampled() -> None:
    sampler = ScriptedSampler("behavior")
    group = collect(sampler)
    assert [t.completion for t in group] == ["4", "five"]
    assert [info_of(t)["rating"] for t in group] == [1.0, -0.5]
    assert [t.sample for t in group] == [0, 1]
    assert not sampler.completions
    for t in group:
        prompt, segment = t.segments
        assert (segment.actor, segment.trained, segment.learner) == ("recorded", True, "policy")
        assert segment.token_ids.tolist() == [*t.completion.encode(), 0], "the end token is learned too"
        whole = asyncio.run(sampler.logp(t.token_ids))
        assert t.behavior_logp.tolist() == whole[len(prompt) - 1 :].tolist()


def test_they_are_no_rollouts_of_the_policy() -> None:
    group = scored()
    assert all(t.given and not t.demonstrated for t in group)
    assert group.solved == 0.0
    assert unaided([group]) == []
    assert recorded_metrics([group]) == {"recorded/tokens": 3.5, "recorded/reward": 0.25, "recorded/solved": 0.5}
    counted = {"grader_errors": 0.0, "sampled_tokens": 0.0}
    assert rollout_metrics([group]) == {**recorded_metrics([group]), **counted}


def test_beside_rollouts_only_the_rollouts_count() -> None:
    own = trajectory(4, reward=1.0, of=RATED, sample=7)
    mixed = Group(key="t", trajectories=(*scored(), own))
    metrics = rollout_metrics([mixed])
    alone = rollout_metrics([Group(key="t", trajectories=(own,))])
    assert {name: value for name, value in metrics.items() if not name.startswith("recorded/")} == alone
    assert metrics["recorded/reward"] == 0.25
    assert mixed.solved == 1.0


def test_they_do_not_count_in_the_divergence_of_the_policy() -> None:
    own = trajectory(2, logp=[-1.0, -1.0])
    groups = [scored(), Group(trajectories=(own,))]
    reference = tuple(np.full(t.num_trained, -1.5, np.float32) for g in groups for t in g)
    found = signal_metrics(batch_of(groups, {logp_of("reference"): reference}, {}, 0.0))
    assert found["kl/reference"] == pytest.approx(np.expm1(-0.5) + 0.5)
    alone = batch_of(groups[:1], {logp_of("reference"): reference[:2]}, {}, 0.0)
    assert signal_metrics(alone) == {"kl/reference": 0.0}


def test_tasks_without_rated_completions_are_refused() -> None:
    Recorded().check([RATED])
    with pytest.raises(UserError, match=r"1 of 2 tasks have none; the first is task bare.*rating"):
        Recorded().check([RATED, BARE])


def test_one_that_does_not_fit_is_refused() -> None:
    sampler = ScriptedSampler("behavior")
    sampler.context = 8
    with pytest.raises(UserError, match=r"prompt \(5 tokens\) and rated completion \(5\).*context of 8 tokens"):
        collect(sampler)


def test_the_model_that_wrote_them_is_needed() -> None:
    assert Recorded().roles == {"behavior"}


def test_lines_are_turns() -> None:
    """The delimiter ends its line, the end token is the last line's, and a delimiter at the end begins no line."""
    sampler = ScriptedSampler("behavior")
    texts = ("1+2=3; 3+4=7;\n7", "7", "1;2;")
    task = Task(key="t", prompt="2+2=", rated=tuple(Rated(completion=text, rating=0.0) for text in texts))
    [whole] = asyncio.run(Recorded().collect(task, {"behavior": sampler}))
    [cut] = asyncio.run(Recorded(delimiter=";").collect(task, {"behavior": sampler}))
    lines = [[(s.text, s.turn) for s in t.segments[1:]] for t in cut]
    assert lines == [[("1+2=3;", 0), (" 3+4=7;", 1), ("\n7", 2)], [("7", 0)], [("1;", 0), ("2;", 1)]]
    assert [len(s) for s in cut.trajectories[0].segments] == [5, 6, 7, 3]
    for one, other in zip(cut, whole, strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist() and one.completion == other.completion
        assert one.behavior_logp.tolist() == other.behavior_logp.tolist()
        assert all(s.actor == "recorded" and s.trained for s in one.segments[1:])


def test_some_task_must_have_as_many_as_are_compared() -> None:
    single = Task(key="s", prompt="2+2=", rated=(Rated(completion="4", rating=1.0),))
    Recorded().check([single])
    Recorded(fewest=2).check([single, RATED])
    with pytest.raises(UserError, match=r"none of the 2 tasks has 2 of them.*kind: gathered"):
        Recorded(fewest=2).check([single, single])
