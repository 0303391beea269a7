"""Needs are derived from the parts, checked before anything is sampled, and computed in one pass per model."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.noises.constant import Constant
from posttrain.components.penalties.exact_kl import ExactKL
from posttrain.components.penalties.velocity import Velocity
from posttrain.components.shapes.flow import Flow
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.models import Model
from posttrain.policies import Packed, Policy
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.signals import OLD_ENTROPY, OLD_LOGP, OLD_VALUE, Signal, logp_of
from posttrain.stages import Models
from posttrain.stages.needs import check_needs, needs_of
from posttrain.stages.rl import RL
from posttrain.stages.rl.signals import signals_for
from posttrain.types import Group, Segment, Trajectory
from tests.builders import task

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

CPU = torch.device("cpu")
COPY = "source=role:policy"
DIVERGED = Signal("reverse_kl", of="reference", old=True)


def refused(recipe: Recipe) -> str:
    """Errors about a recipe before its run."""
    context = RunContext(recipe, CPU)
    with pytest.raises(UserError) as caught:
        context.check(context.first_models())
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ("penalties.kl={kind: kl, role: referenc}", f"models.reference.{COPY}"),
            "stages.rl.penalties.kl needs a model in the role 'referenc' (logp of 'referenc'), and there is none; did "
            "you mean 'reference'? Write stages.rl.penalties.kl.role=ROLE, or models.referenc.source=role:policy",
        ),
        (
            ("advantage={kind: bounded, of: gae}",),
            "stages.rl.advantage.of needs a model in the role 'critic' (value before the updates), and there is none; "
            "known: policy. Write models.critic={source: 'role:policy', head: value, trained: true} and critic=",
        ),
        (
            ("advantage=gae", f"models.critic.{COPY}"),
            "stages.rl.advantage needs value before the updates, and the model in the role 'critic' has a language "
            "head, which gives certainty, entropy, logit, logp, self_certainty; models.critic.head=value gives it",
        ),
        (("objective=value_clip",), "stages.rl.objective needs value, and the model in the role 'policy' has a"),
        (
            ("penalties.kl={kind: exact_kl, role: judge}", "models.judge={source: 'role:policy', head: reward}"),
            "stages.rl.penalties.kl needs forward_kl to 'judge', and the model in the role 'judge' has a reward head",
        ),
        (("penalties.v={kind: velocity}", f"models.reference.{COPY}"), "stages.rl.penalties.v needs velocity, and the"),
        (
            ("penalties.kl={kind: kl, role: far}", "models.far.source=http://127.0.0.1:9/v1"),
            "stages.rl.penalties.kl needs logp of 'far', and the model in the role 'far' is an endpoint",
        ),
        (
            ("reward={kind: sum, parts: {a: {kind: reward_model, role: policy}}}", "evaluation.verifier=match"),
            "stages.rl.reward.parts.a needs score of 'policy', and the model in the role 'policy' has a language head",
        ),
        (
            ("models.guide={source: 'role:policy', trained: true}", "by_role.guide.objective=iq_learn",
             "by_role.guide.advantage={kind: top_entropy, advantage: group_mean, beside: base}"),
            "stages.rl.by_role.guide.advantage needs a model in the role 'base' (entropy of 'base')",
        ),
        ((f"models.old.{COPY}",), "models.old: 'old' stands for the learning model before the step"),
        (
            ("penalties.kl={kind: kl, role: trained}", f"models.trained.{COPY}"),
            "whose column in the record, trained_logp, is that of another signal; give the role 'trained' another name",
        ),
        (
            ("evaluation.search={kind: best_of, value_role: critic}", f"models.critic.{COPY}"),
            "evaluation.search needs score of 'critic', and the model in the role 'critic' has a language head",
        ),
    ],
)  # fmt: skip
def test_what_no_model_gives_is_refused(small: Small, changes: tuple[str, ...], message: str) -> None:
    assert message in refused(small(None, *changes))


def test_other_tokens_are_refused(tmp_path: Path, tiny_folder: Path) -> None:
    larger = new_folder(tmp_path / "m", layers=1, width=32, heads=2, kv_heads=1, context=64, words=("one",))
    recipe_models = {"policy": Model(source=str(tiny_folder), trained=True), "far": Model(source=str(larger))}
    models = {role: load_policy(role, model, {}, CPU) for role, model in recipe_models.items()}
    needs = needs_of("penalties.kl", ExactKL(role="far"), role="policy")
    with pytest.raises(UserError, match=r"between models with the same tokens; 'policy' has \d+ and 'far' \d+"):
        check_needs("stages.rl", needs, recipe_models, models)


def test_a_flow_gives_velocities_and_no_divergences() -> None:
    recipe_models = {
        "policy": Model(source="new", shape=Flow(steps=2, noise=Constant()), trained=True),
        "reference": Model(source="role:policy"),
    }
    models = {"policy": load_policy("policy", recipe_models["policy"], {}, CPU)}
    check_needs("stages.rl", needs_of("penalties.v", Velocity(), role="policy"), recipe_models, models)
    with pytest.raises(UserError, match="forward_kl to 'reference', and the flow in the role 'policy' has a language"):
        check_needs("stages.rl", needs_of("penalties.kl", ExactKL(), role="policy"), recipe_models, models)


OLDER = """
from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken

@frozen
class Older(Objective):
    needs = frozenset({"reference_logp"})

    def __call__(self, tokens):
        return PerToken(loss_T=-tokens.logp_T)
"""


def test_a_need_that_is_text_is_refused_with_what_to_write(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "somebody").mkdir()
    (tmp_path / "somebody" / "older.py").write_text(OLDER)
    monkeypatch.syspath_prepend(tmp_path)
    message = refused(small(None, "objective={kind: somebody.older}"))
    assert "objective: the needs of 'somebody.older' hold 'reference_logp', and a need is a Signal: write " in message


def test_a_role_is_that_role_whatever_its_name_ends_in(small: Small, train: Train) -> None:
    """As a string its divergence was taken for another one: 'base_reverse_kl' is KL(model || base) too."""
    changes = (
        "steps=1",
        "filters={}",
        f"models.base_reverse.{COPY}",
        "penalties.kl={kind: adaptive_kl, role: base_reverse}",
    )
    _, store = train(small(None, *changes))
    assert store.metrics()[0]["kl/base_reverse"] == pytest.approx(0.0, abs=1e-6)
    assert "base_reverse_kl" in store.rollouts(1)[0]


def test_the_needs_of_ppo() -> None:
    recipe = ppo()
    found = {(str(n.signal), n.role, n.path) for n in recipe.stages["rl"].needed(recipe.models)}
    assert found == {
        ("value before the updates", "critic", "advantage"),
        ("logp of 'reference'", "reference", "penalties.kl"),
        ("value", "critic", "critic"),
        ("value before the updates", "critic", "critic"),
    }


def test_a_correction_has_the_learners_log_probabilities_computed(small: Small, train: Train) -> None:
    """Beside those of the sampler alone it would be one everywhere, whatever is declared about `old_logp`."""
    recipe = small(None, "steps=1", "filters={}", "correction=truncated")
    stage = recipe.stages["rl"]
    assert [(n.signal, n.path) for n in stage.needed(recipe.models)] == [(OLD_LOGP, "correction")]
    assert isinstance(stage, RL) and stage.needs == {OLD_LOGP}
    _, store = train(recipe)
    assert store.metrics()[0]["correction"] == pytest.approx(1.0, abs=1e-4)


class Counted:
    """Counts the forward passes of models."""

    def __init__(self, models: Models) -> None:
        self.passes: Counter[str] = Counter()
        for role, model in models.items():
            self._watch(role, model)

    def _watch(self, role: str, model: Policy) -> None:
        hidden = model.body.hidden

        def counted(packed: Packed) -> torch.Tensor:
            self.passes[role] += 1
            return hidden(packed)

        model.body.hidden = counted  # type: ignore[method-assign]


def shown(prefix: int, own: int, seed: int) -> Trajectory:
    """A prompt, a demonstrated prefix and sampled tokens."""
    rng = np.random.default_rng(seed)
    parts: list[Segment] = [Segment(actor="prompt", token_ids=rng.integers(0, 200, 3))]
    if prefix:
        parts.append(Segment(actor="demonstration", token_ids=rng.integers(0, 200, prefix), trained=True))
    logp_T = -rng.exponential(size=own).astype(np.float32)
    parts.append(Segment(actor="policy", token_ids=rng.integers(0, 200, own), trained=True, logp=logp_T))
    return Trajectory(task=task(), segments=tuple(parts), stop_reason="stop")


@pytest.fixture
def models(tiny_folder: Path, tmp_path: Path) -> Models:
    """Different models of one size, a critic among them."""
    other = new_folder(tmp_path / "other", layers=1, width=32, heads=2, kv_heads=1, context=64, seed=7)
    roles: dict[str, Any] = {"policy": tiny_folder, "reference": other, "teacher": other}
    made = {role: load_policy(role, Model(source=str(folder)), {}, CPU) for role, folder in roles.items()}
    critic = load_policy("critic", Model(source="role:policy", head="value"), made, CPU)
    torch.nn.init.normal_(critic.get_parameter("value_head.weight"))
    return {**made, "critic": critic}


EVERYTHING = frozenset(
    {
        OLD_LOGP,
        OLD_ENTROPY,
        OLD_VALUE,
        DIVERGED,
        Signal("forward_kl", of="reference", old=True),
        logp_of("reference"),
        logp_of("teacher"),
        Signal("entropy", of="reference"),
        Signal("entropy", of="teacher"),
        Signal("score", of="critic"),
    }
)


def computed(models: Models, needs: frozenset[Signal], groups: list[Group]) -> tuple[Any, Counter[str]]:
    counted = Counted(models)
    return signals_for(groups, needs, models, 10_000, 0.8), counted.passes


def test_each_model_does_one_pass_for_all_its_signals(models: Models) -> None:
    groups = [Group(trajectories=tuple(shown(0, n, n) for n in (4, 2, 6)))]
    found, passes = computed(models, EVERYTHING, groups)
    assert found.keys() == EVERYTHING
    assert passes == {"policy": 1, "reference": 1, "teacher": 1, "critic": 1}


def test_signals_are_the_same_together_and_alone(models: Models) -> None:
    groups = [Group(trajectories=tuple(shown(0, n, n) for n in (4, 2, 6)))]
    together, _ = computed(models, EVERYTHING, groups)
    for need in EVERYTHING:
        [alone] = signals_for(groups, frozenset({need}), models, 10_000, 0.8).values()
        for one, other in zip(together[need], alone, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(need))
    assert (np.concatenate(together[DIVERGED]) > 0).all()
    assert not np.allclose(together[logp_of("reference")][0], together[OLD_LOGP][0])


def test_tokens_that_were_not_sampled_cost_no_second_pass(models: Models) -> None:
    """They are evaluated in the policy's pass; without such a pass, in one over their sequences only."""
    groups = [Group(trajectories=(shown(0, 4, 0), shown(3, 2, 1)))]
    found, passes = computed(models, frozenset({OLD_ENTROPY}), groups)
    assert passes == {"policy": 1}
    alone, passes = computed(models, frozenset({logp_of("teacher")}), groups)
    assert passes == {"teacher": 1, "policy": 1}
    exact = signals_for(groups, frozenset({OLD_LOGP}), models, 10_000, 0.8)[OLD_LOGP]
    for each in (found, alone):
        first, second = each[OLD_LOGP]
        np.testing.assert_array_equal(first, groups[0].trajectories[0].behavior_logp)
        np.testing.assert_array_equal(second[3:], groups[0].trajectories[1].behavior_logp[3:])
        np.testing.assert_allclose(second[:3], exact[1][:3], rtol=1e-5)


def test_a_step_runs_the_reference_once(small: Small, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a KL in the reward, one in the loss and an entropy to compare, in a run."""
    from posttrain.training import learner

    calls: list[str] = []
    plain = learner.evaluate_examples

    def counted(policy: Policy, *arguments: Any, **settings: Any) -> Any:
        calls.append(policy.role)
        return plain(policy, *arguments, **settings)

    monkeypatch.setattr(learner, "evaluate_examples", counted)
    changes = ("steps=2", f"models.reference.{COPY}", "penalties.a={kind: kl, where: reward}", "penalties.b=kl",
               "advantage={kind: top_entropy, advantage: group_mean, beside: reference}", "filters={}",
               "old_logp=recomputed")  # fmt: skip
    train(override(small(), changes))
    assert Counter(calls) == {"reference": 2, "policy": 2}
