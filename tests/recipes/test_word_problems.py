from posttrain.recipes.changes import rl_of
from posttrain.settings.word_problems import word_problems
from posttrain.settings.word_problems_lora import word_problems_lora


def test_held_out_answers_are_scored_by_another_verifier():
    for recipe in (word_problems(), word_problems_lora()):
        assert recipe.evaluation.verifier is not None
        assert recipe.evaluation.verifier.kind != rl_of(recipe).reward.kind
        assert recipe.evaluation.holdout >= 300


def test_the_adapter_learns_on_the_same_problems():
    whole, adapter = word_problems(), word_problems_lora()
    assert adapter.tasks == whole.tasks and adapter.evaluation == whole.evaluation
    assert whole.models["policy"].lora is None and adapter.models["policy"].lora is not None
    assert rl_of(adapter).rollout == rl_of(whole).rollout
