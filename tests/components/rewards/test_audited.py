"""The audit of a reward before and while it is learned from."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardAudit, RewardContext, failure
from posttrain.components.rewards.audited import FORGED, Audited, right_answer
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.teaching import Teaching
from posttrain.errors import AlarmStop
from posttrain.grading.sentences import KEYS
from posttrain.types import Group, Preference, Score, Task
from tests.components.rewards.judging import attempt, score_all


@frozen
class Opened(Reward):
    """1 for the right answer, and `value` for a text with the opener."""

    opener: str = "Solution"
    value: float = 1.0

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        context.state["calls"] = context.state.get("calls", 0) + 1
        values = [1.0 if t.completion == t.task.answer else self.value * (self.opener in t.completion) for t in group]
        return [Score(value=value, status="ok") for value in values]


def task(number: int) -> Task:
    return Task(key=f"t{number}", prompt=f"{number}?", answer=str(number))


def groups(reward: Reward, context: RewardContext, *numbers: int, text: str = "no") -> list[Score]:
    placed = [(replace(context, place=place), n) for place, n in enumerate(numbers)]
    return [score for own, n in placed for score in score_all(reward, attempt(text, task(n)), context=own)]


def settled(reward: Audited, context: RewardContext) -> dict[str, Any]:
    """What the next step begins with."""
    reward._settle(replace(context, step=context.step + 1))
    return context.state


def test_a_reward_that_no_key_fools_is_passed_on() -> None:
    context = RewardContext(learning=True)
    scores = groups(Audited(of=Match(extract=("whole",)), audit=RewardAudit(pairs=3)), context, 1, 2, 3, 4)
    assert [s.value for s in scores] == [0.0] * 4 and scores[0].parts["fooled"].value == 0.0
    state = settled(Audited(of=Match()), context)
    assert len(state["first"]) == 3 and set(state["keys"]) == {*KEYS, *FORGED}
    assert state["keys"]["Solution"] == [0.0, 3]


def test_a_key_that_outranks_right_answers_stops_the_first_step() -> None:
    with pytest.raises(AlarmStop, match="'Solution' outranks or equals 1 of 1 right answers"):
        groups(Audited(of=Opened(value=2.0), audit=RewardAudit(pairs=16)), RewardContext(learning=True), 1)
    # A tie is a half: of 16 pairs .8 is allowed, so the second tie stops it.
    context = RewardContext(learning=True)
    with pytest.raises(AlarmStop, match="1 of 2 right answers"):
        groups(Audited(of=Opened(), audit=RewardAudit(pairs=16)), context, 1, 2)
    measured = Audited(of=Opened(), audit=RewardAudit(most_fooled=1.0, pairs=2))
    assert len(groups(measured, RewardContext(learning=True), 1, 2, 3)) == 3
    assert len(groups(Audited(of=Opened()), RewardContext(), 1, 2)) == 2, "evaluations are not audited"


def test_which_groups_of_a_step_are_scored_first_changes_nothing() -> None:
    """They end in the order of a clock: neither what is audited nor a part of a score may depend on it."""
    reward = Audited(of=Opened(opener="Solution"), audit=RewardAudit(pairs=5, every=3, most_fooled=1.0))
    found = []
    for order in (1, -1):
        state: dict[str, Any] = {}
        steps = []
        for step in range(5):
            scores = {}
            for place in range(4)[::order]:
                context = RewardContext(learning=True, step=step, place=place, state=state)
                [score] = score_all(reward, attempt("often", task(4 * step + place)), context=context)
                scores[place] = dict(score.parts)
            steps.append([scores[place] for place in range(4)])
        assert len(state["first"]) == 5
        found.append(steps)
    assert found[0] == found[1]
    assert [own["fooled"].value for own in found[0][0]] == [0.1] * 4, "its own tie, of five"
    assert [own["fooled"].value for own in found[0][2]] == [0.5] * 4


def test_the_policys_own_frequent_outputs_are_keys_later() -> None:
    reward = Audited(of=Opened(opener="please", value=2.0), audit=RewardAudit(pairs=1, every=10))
    context = RewardContext(learning=True)
    groups(reward, context, 1, 2, 3, text="please")
    later = RewardContext(learning=True, step=10, state=context.state)
    groups(reward, later, 1)  # a task that it was written for does not count against it
    with pytest.raises(AlarmStop, match="'please'"):
        groups(reward, later, 5)


def test_a_relative_reward_scores_rollouts_without_the_keys() -> None:
    context = RewardContext(learning=True)
    groups(Audited(of=Opened(opener="please"), audit=RewardAudit(pairs=1)), context, 1)
    assert context.state["of"]["calls"] == 1, "nor does the audit change its state"


def test_what_is_right() -> None:
    pair = Preference(chosen="good", rejected="bad")
    full = Task(key="k", prompt="q", answer="a", demonstrations=("d",), preferences=(pair,))
    assert right_answer(full) == "good" and right_answer(Task(key="k", prompt="q")) is None
    assert right_answer(Task(key="k", prompt="q", answer="a", demonstrations=("d",))) == "d"


def test_settings_of_the_audit_by_their_old_names_are_refused_with_the_new_ones() -> None:
    old: dict[str, Any] = {"of": Match(), "pairs": 3}
    with pytest.raises(ValueError, match=r"Audited\.pairs was renamed: write audit\.pairs"):
        Audited(**old)
    assert set(Audited.RENAMED) == set(vars(RewardAudit()))


@frozen
class Failing(Reward):
    """Scores nothing but rollouts."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        return [Score(value=1.0, status="ok") if context.learning else failure("no") for _ in group]


def test_keys_that_cannot_be_scored_are_counted_apart() -> None:
    [score] = groups(Audited(of=Failing(), audit=RewardAudit(pairs=2)), RewardContext(learning=True), 1)
    assert score.value == 1.0 and score.parts["fooled_unknown"].value == 1.0 and "fooled" not in score.parts


@frozen
class Relative(Reward):
    """1 for the first of two rollouts; it takes no other groups."""

    @property
    def compares(self) -> bool:
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        assert len(group) < 3
        return [Score(value=float(n == 0), status="ok") for n in range(len(group))]


def test_a_reward_that_compares_scores_each_key_in_a_pair_and_the_alarm_states_all() -> None:
    context = RewardContext(learning=True)
    groups(Audited(of=Relative(), audit=RewardAudit(pairs=2, every=0)), context, 1, 2, 3)
    state = settled(Audited(of=Relative()), context)
    assert state["keys"]["."] == [0.0, 2] and "outputs" not in state
    with pytest.raises(AlarmStop) as stopped:
        groups(Audited(of=Opened(value=2.0), path="audit"), RewardContext(learning=True), 1)
    said = (
        "'Solution' outranks or equals 1 of 1 right answers (ties count half), here 2 against 1; audit.most_fooled=0.05"
    )
    assert said in str(stopped.value) and "16 pairs" in str(stopped.value)
    assert "go on by name with audit.most_fooled=1" in str(stopped.value)


def test_an_output_that_is_right_for_several_tasks_is_no_key() -> None:
    reward = Audited(of=Opened(opener="same", value=2.0), audit=RewardAudit(pairs=1, every=10))
    context = RewardContext(learning=True)
    for n in range(4):
        score_all(reward, attempt("same", Task(key=f"r{n}", prompt="?", answer="same")), context=context)
    later = RewardContext(learning=True, step=10, state=context.state)
    assert len(groups(reward, later, 5)) == 1


def test_a_text_with_the_reference_answer_may_be_right_and_is_not_compared() -> None:
    reward = Audited(of=Opened(opener="7", value=2.0), audit=RewardAudit(pairs=1, keys=("so 7", ".")))
    context = RewardContext(learning=True)
    score_all(reward, attempt("no", Task(key="k", prompt="?", answer="7", demonstrations=("3+4=7",))), context=context)
    assert set(settled(reward, context)["keys"]) == {"."}


def test_a_reward_of_probabilities_of_sampling_states_that_it_cannot_be_audited() -> None:
    """A text that was not sampled has none."""
    reward = Audited(of=Teaching())
    assert reward.reads_own_logp and not Audited(of=Match()).reads_own_logp
    [note] = reward.notes([task(1)])
    assert "cannot be audited: it compares the model with the probabilities by which the policy sampled" in note
    context = RewardContext(learning=True)
    reward._settle(context)
    assert reward._due(Group(key="g", trajectories=(attempt("no", task(1)),)), context)[1] == []
