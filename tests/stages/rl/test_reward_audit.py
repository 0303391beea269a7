"""The audit with which reinforcement begins where a model decides the reward: on by default, off by name, no draw."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from posttrain.components.rewards import Reward, RewardAudit
from posttrain.components.rewards.audited import Audited
from posttrain.components.rewards.by_rules import ByRules
from posttrain.components.rewards.judge import Judge
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.ranked import Ranked
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.rewards.sum import Sum
from posttrain.errors import AlarmStop
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.runs.summary import summarize
from posttrain.settings.reward_model_sums import reward_model_sums
from posttrain.stages import Models
from posttrain.stages.rl.reward_audit import audited
from posttrain.types import Task
from tests.conformance._members import members
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]
LIKELIHOOD = "reward={kind: likelihood, role: policy}"
JUDGE = (
    "reward={kind: judge, role: policy, template: '{raw_completion} =', label: '', verdicts: [0, 999999], "
    "chat: false, samples: 12, sampling: {temperature: 1, max_tokens: 6}}",
    "max_grader_errors=1",
)
CASES = {
    "rule": (),
    "scores": (LIKELIHOOD,),
    "writes": JUDGE,
}


@pytest.mark.parametrize("reward", members(Reward))
def test_every_reward_that_uses_a_model_is_audited_and_no_other(reward: Reward) -> None:
    uses = bool(reward.roles)
    assert reward.uses_models == uses
    found = audited(reward, RewardAudit())
    assert (isinstance(found, Audited) and found.of == reward) if uses else found == reward
    assert audited(reward, None) == reward and audited(found, RewardAudit()) == found


def test_a_part_that_uses_a_model_is_enough_and_one_that_is_audited_already_too() -> None:
    mixed = Sum(parts={"right": Match(), "liked": RewardModel()})
    assert isinstance(audited(mixed, RewardAudit()), Audited)
    own = Sum(parts={"right": Match(), "liked": Audited(of=RewardModel(), audit=RewardAudit(most_fooled=0.5))})
    assert audited(own, RewardAudit()) == own
    assert not audited(Sum(parts={"right": Match()}), RewardAudit()).uses_models
    assert ByRules(role="judge").uses_models and not ByRules().uses_models
    assert Ranked(role="judge").compares and Sum(parts={"one": Ranked(role="judge")}).compares


def test_it_is_announced_with_what_it_takes_and_so_is_where_nothing_is_right() -> None:
    right, bare = Task(key="a", prompt="?", answer="1"), Task(key="b", prompt="?")
    [note] = audited(RewardModel(), RewardAudit()).notes([right, bare])
    assert "14 texts without content" in note and "240 further scorings" in note and "audit.most_fooled" in note
    [note] = audited(RewardModel(), RewardAudit()).notes([bare])
    assert "cannot be audited: no task has a right answer" in note
    [note] = audited(Ranked(role="judge"), RewardAudit(pairs=2, every=0)).notes([right])
    assert "2 groups (56 further scorings); one" in note, "pairs, of two scores each"
    assert audited(Match(), RewardAudit()).notes([right]) == []


def weights(models: Models) -> list[Any]:
    return list(models["policy"].state_dict().values())


def same(ours: Models, theirs: Models) -> bool:
    return all(a.equal(b) for a, b in zip(weights(ours), weights(theirs), strict=True))


@pytest.mark.parametrize("case", ["rule", pytest.param("scores", marks=pytest.mark.slow), "writes"])
def test_it_changes_no_draw_and_resumes_in_the_middle(case: str, small: Small, train: Train, tmp_path: Any) -> None:
    sizes = ("steps=2", "prompts=2", "rollout.n=3", "lr=1e-2", "checkpoints.every_steps=1", "evaluation.by=none")
    few = ("audit.pairs=3", "audit.every=1", "audit.most_fooled=1", "audit.keys=['.', 'Solution']")
    changed = small(None, *CASES[case], *sizes, *few)
    plain, _ = train(small(None, *CASES[case], *sizes, "audit=null"))
    models, store = train(changed)
    assert same(models, plain)
    assert all(("reward/fooled" in entry) == (case == "scores") or case == "writes" for entry in store.metrics())
    again, resumed = cut_off_and_resumed(changed, tmp_path / "cut", at=1)
    assert same(again, models)
    fooled = [[entry.get("reward/fooled") for entry in one.metrics()] for one in (store, resumed)]
    assert fooled[0] == fooled[1]
    found = summarize(store)["fooled"]
    assert (found is None) == (fooled[0][-1] is None)
    assert found is None or (found["share"] >= fooled[0][-1] and "right answers" in found["text"])


def test_a_fooled_reward_stops_the_stage_by_default(small: Small, train: Train) -> None:
    """Of a tiny random model, a text of one mark is likelier than a sum."""
    with pytest.raises(
        AlarmStop, match=r"outranks or equals .* right answers .* go on by name with audit.most_fooled=1"
    ):
        train(small(None, LIKELIHOOD, "steps=1", "evaluation.by=none"))


def test_settings_of_the_stage_are_those_of_the_audit() -> None:
    audit = RewardAudit(most_fooled=0.25, pairs=3, keys=(".",), every=0)
    stage = replace(rl_of(reward_model_sums()), audit=audit)
    assert stage.audited_reward == Audited(of=stage.reward, audit=audit, path="audit")
    assert Judge().uses_models
