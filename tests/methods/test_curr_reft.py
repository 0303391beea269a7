"""Curr-ReFT: its stages, from closed to open answers, and then SFT on the best of several."""

from posttrain.components.rewards.answer_set import AnswerSet
from posttrain.components.rewards.sum import Sum
from posttrain.components.selections.best import Best
from posttrain.components.tasks.shapes import Shapes
from posttrain.methods.curriculum.curr_reft import curr_reft
from posttrain.recipes.changes import rl_of
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.rl import RL
from posttrain.stages.sft import SFT


def test_stages_go_from_closed_to_open_answers() -> None:
    stages = curr_reft().stages
    assert list(stages) == ["sft", "judge", "choice", "open", "best"]
    forms = []
    for name in ("judge", "choice", "open"):
        stage = stages[name]
        assert isinstance(stage, RL) and isinstance(stage.reward, Sum) and stage.reward.weights == {}
        rule = stage.reward.parts["answer"]
        assert isinstance(rule, AnswerSet)
        forms.append((rule.form, stage.tasks.question if isinstance(stage.tasks, Shapes) else None))
    assert forms == [("yes_no", "yes_no"), ("letters", "choice"), ("items", None)]
    best = stages["best"]
    assert isinstance(best, SFT) and isinstance(best.selection, Best)
    assert (best.selection.n, best.selection.at_least) == (8, 0.85)


def test_other_tasks_keep_their_reward() -> None:
    own = arithmetic()
    stage = curr_reft(own).stages["judge"]
    assert isinstance(stage, RL) and stage.tasks is None and isinstance(stage.reward, Sum)
    assert stage.reward.parts["answer"] == rl_of(own).reward
