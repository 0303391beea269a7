"""RPO on a tiny new model: DPO with one term more."""

from collections.abc import Callable

import pytest

from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.ipo import IPO
from posttrain.components.preferences.rpo import RPO
from posttrain.methods.preference.dpo import dpo
from posttrain.methods.preference.rpo import rpo
from posttrain.recipes.catalogue import entries
from posttrain.recipes.changes import preference_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = ("tasks.terms=[2, 2]", "max_steps=3", "batch=4", "lr=1e-2")


def test_it_trains(small: Small, train: Train) -> None:
    """At the first step the policy is the reference: log 2, and eta beta times the chosen completions' nats."""
    models, store = train(small(rpo(), *SHORT, "loss.eta=0.5"))
    assert models["policy"].version == 3
    first, *_, last = store.metrics()
    assert first["loss"] == pytest.approx(0.6931472 - 0.5 * 0.1 * first["chosen_logp"], abs=1e-5)
    assert first["chosen_nll"] == pytest.approx(-first["chosen_logp"])
    assert last["chosen_nll"] < first["chosen_nll"]


@pytest.mark.slow
def test_without_weight_it_is_dpo_to_the_bit(small: Small, train: Train) -> None:
    ours, theirs = (train(small(recipe, *SHORT, *more)) for recipe, more in ((rpo(), ("loss.eta=0",)), (dpo(), ())))
    for (name, a), b in zip(
        ours[0]["policy"].state_dict().items(), theirs[0]["policy"].state_dict().values(), strict=True
    ):
        assert a.equal(b), name
    seen = [{name: x for name, x in entry.items() if name != "chosen_nll"} for entry in ours[1].metrics()]
    assert seen == theirs[1].metrics()


def test_it_changes_whatever_loss_there_is() -> None:
    assert preference_of(rpo()).loss == RPO(loss=DPO())
    assert preference_of(rpo(override(dpo(), ["loss.kind=ipo"]))).loss == RPO(loss=IPO())
    assert preference_of(override(rpo(), ["loss.loss.kind=ipo", "loss.eta=0.1"])).loss == RPO(loss=IPO(), eta=0.1)


def test_it_is_listed_with_its_row() -> None:
    (found,) = [entry for entry in entries("recipe") if entry.name == "rpo"]
    assert (found.rows, found.source) == ((274,), "arXiv:2405.16436")
