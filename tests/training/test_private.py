"""Private updates on a tiny model: gradients of records, clipping by hand, noise, the ledger, and resuming."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.components.controllers import Knobs
from posttrain.components.controllers.actor_critic import ActorCritic
from posttrain.components.controllers.fixed import Fixed
from posttrain.components.controllers.quantile import Quantile
from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.reducers.tokens import Tokens as TokensReducer
from posttrain.datasets.order import independent
from posttrain.errors import UserError
from posttrain.models import LoRA, Model
from posttrain.policies import Policy
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.stages.loss import combine
from posttrain.stages.sft import demonstration, example_from
from posttrain.training.averages import Averages
from posttrain.training.gradients import _Separate, gradients_of
from posttrain.training.learner import Learner, Loss
from posttrain.training.packing import Example
from posttrain.training.privacy import Privacy
from posttrain.training.private import PrivateLearner, grouped
from posttrain.training.settings import Learning
from posttrain.types import PerToken, Task

LOSS = Loss(per_token=combine(Likelihood(), {}, None), reducer=Sequences())
TEXTS = (" 12", " 7", " 123456", " abc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("m") / "m", layers=1, width=32, heads=2, kv_heads=1, context=64)


def policy(folder: Path, *, adapted: bool = True) -> Policy:
    lora = LoRA(rank=2, alpha=4.0) if adapted else None
    made = load_policy("policy", Model(source=str(folder), trained=True, lora=lora), {}, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in made.named_parameters():
        if name.endswith("lora_B"):  # zero at first, so that A would have no gradient
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    return made


def examples(own: Policy, texts: tuple[str, ...] = TEXTS) -> list[Example]:
    return [example_from(demonstration(own, Task(key=text, prompt=f"p{len(text)}:"), text)) for text in texts]


def learner(own: Policy, *, steps: int = 50, batch: int = 4, records: int = 40, **settings: Any) -> PrivateLearner:
    learning = Learning(optimizer=AdamW(lr=1e-2), clip_norm=None, privacy=Privacy(**{"epsilon": 8.0, **settings}))
    return PrivateLearner(own, learning, seed=3, num_steps=steps, batch=batch, records=records)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("reducer", [Sequences(), TokensReducer()])
def test_one_pass_gives_the_gradients_of_one_pass_each(
    folder: Path, reducer: Any, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels:
        monkeypatch.setattr("posttrain.kernels.layers.covered", lambda *given: False)
    own = policy(folder)
    made, loss = learner(own), Loss(per_token=LOSS.per_token, reducer=reducer)
    together = gradients_of(made, examples(own), loss, 0.0, Averages())
    norms_GN = together.norms(made.groups)
    sums = together.weighted(made.groups, torch.ones_like(norms_GN))
    wanted: dict[str, torch.Tensor] = {}
    for n, example in enumerate(examples(own)):
        plain = dict(zip(made.parameters, made.gradient([example], loss, progress=0.0), strict=True))
        for g, names in enumerate(made.groups):
            norm = math.sqrt(sum(float((plain[name] ** 2).sum()) for name in names))
            assert float(norms_GN[g, n]) == pytest.approx(norm, rel=1e-3, abs=1e-7)
        wanted = {name: wanted.get(name, 0) + gradient for name, gradient in plain.items()}
    for name, total in wanted.items():
        assert torch.allclose(sums[name], total, atol=1e-6), name


def test_a_group_is_a_pair_of_an_adapter(folder: Path) -> None:
    own = policy(folder)
    names = [name for name, p in own.named_parameters() if p.requires_grad]
    pairs = grouped(names, "pairs")
    assert len(pairs) == 7 and all(len(pair) == 2 and pair[0][:-1] == pair[1][:-1] for pair in pairs)
    assert len(grouped(names, "tensors")) == 14 and grouped(names, "one") == [names]


def applied(made: PrivateLearner, own: Policy, texts: tuple[str, ...] = TEXTS) -> dict[str, torch.Tensor]:
    """The gradients that the optimizer gets in a step."""
    seen: dict[str, torch.Tensor] = {}
    step = made.optimizers[0].step

    def keep() -> Any:
        seen.update({name: p.grad.clone() for name, p in made.parameters.items() if p.grad is not None})
        return step()

    made.optimizers[0].step = keep  # type: ignore[method-assign]
    made.step(examples(own, texts), LOSS, progress=0.0)
    return seen


def test_every_record_is_clipped_in_every_group(folder: Path) -> None:
    """With one record and next to no noise, the gradient of each pair has the norm of its bound / expected batch."""
    own = policy(folder)
    made = learner(own, clip=1e-3)
    made.first = Knobs(clips=made.first.clips, noise=1e-6)
    made.ledger.epsilon = math.inf
    seen = applied(made, own, TEXTS[:1])
    for names in made.groups:
        norm = math.sqrt(sum(float((seen[name] ** 2).sum()) for name in names))
        assert norm == pytest.approx(1e-3 / 4, rel=1e-3)


def test_noise_has_the_joint_multiplier_and_an_empty_batch_gets_it_too(folder: Path) -> None:
    own = policy(folder)
    made = learner(own, clip=2.0, noise=3.0)
    seen = applied(made, own, ())
    noise = torch.cat([gradient.flatten() for gradient in seen.values()])
    expected = 3.0 * math.sqrt(len(made.groups)) * 2.0 / 4
    assert float(noise.std()) == pytest.approx(expected, rel=0.1)
    assert made.updates == 1 and made.ledger.value > 0


def test_a_gradient_that_is_not_finite_counts_as_none(folder: Path) -> None:
    own, alone = policy(folder), policy(folder)
    broken = [*examples(own)]
    columns = {signal: np.full_like(values, np.nan) for signal, values in broken[1].columns.items()}
    broken[1] = Example(**{**vars(broken[1]), "columns": columns})
    loss = Loss(per_token=_with_advantage, reducer=Sequences())
    made, other = learner(own), learner(alone)
    learned = made.step(broken, loss, progress=0.0)
    other.step([broken[0], broken[2], broken[3]], loss, progress=0.0)
    assert learned.metrics["records_without_gradient"] == 1.0
    for one, two in zip(made.parameters.values(), other.parameters.values(), strict=True):
        assert torch.isfinite(one).all() and torch.allclose(one, two, atol=1e-6)


def _with_advantage(tokens: Any) -> PerToken:
    return PerToken(loss_T=-tokens.logp_T * tokens.advantage_T)


def test_without_adapters_records_have_a_pass_each(folder: Path) -> None:
    own = policy(folder, adapted=False)
    made = learner(own, groups="one")
    before = [p.detach().clone() for p in made.parameters.values()]
    made.step(examples(own), LOSS, progress=0.0)
    assert any(not torch.equal(a, b) for a, b in zip(before, made.parameters.values(), strict=True))


@pytest.mark.slow
def test_the_budget_is_never_passed(folder: Path) -> None:
    for controller in (Fixed(), Quantile(every=2), ActorCritic(every=2)):
        own = policy(folder)
        made = learner(own, noise=1.0, epsilon=8.0, controller=controller)
        steps = 0
        while made.goes_on:
            metrics = made.step(examples(own), LOSS, progress=0.0).metrics
            assert metrics["epsilon"] <= 8.0
            steps += 1
        assert 2 < steps < 200
        weights = [p.detach().clone() for p in made.parameters.values()]
        with pytest.raises(ValueError, match="would exceed epsilon"):
            made.step(examples(own), LOSS, progress=0.0)
        assert all(torch.equal(a, b) for a, b in zip(weights, made.parameters.values(), strict=True))


@pytest.mark.parametrize("controller", [Fixed(), Quantile(every=2), ActorCritic(every=2, batch=2)])
def test_it_resumes_within_an_interval(folder: Path, controller: Any) -> None:
    own, other = policy(folder), policy(folder)
    made, resumed = (learner(p, controller=controller, epsilon=500.0, measured_noise=1.0) for p in (own, other))
    for _ in range(9):
        made.step(examples(own), LOSS, progress=0.0)
    numbers, tensors = made.state()
    resumed.load_state(json.loads(json.dumps(numbers)), tensors)
    for a, b in zip(made.parameters.values(), resumed.parameters.values(), strict=True):
        b.data.copy_(a)
    for p, one in ((own, made), (other, resumed)):
        for _ in range(5):
            one.step(examples(p), LOSS, progress=0.0)
    assert made.ledger == resumed.ledger and made.knobs == resumed.knobs
    for a, b in zip(made.parameters.values(), resumed.parameters.values(), strict=True):
        assert torch.equal(a, b)
    if not isinstance(controller, Fixed):
        assert made.knobs != made.first


def test_a_constant_controller_is_plain_dp_sgd(folder: Path) -> None:
    """Bit for bit, whatever the bounds of the controller are."""
    own, other = policy(folder), policy(folder)
    for p, settings in ((own, {}), (other, {"controller": Fixed(), "clip_bounds": (0.05, 0.2)})):
        made = learner(p, noise=2.0, **settings)
        for _ in range(3):
            made.step(examples(p), LOSS, progress=0.0)
    for a, b in zip(own.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_two_data_sets_are_not_distinguished_beyond_epsilon() -> None:
    """One step at q = 1 on a known gradient of norm C: the best test's advantage stays within (epsilon, delta)."""
    from posttrain.statistics.privacy import Ledger, joint

    rng, groups, sigma, delta = np.random.default_rng(0), 7, 2.0, 1e-2
    ledger = Ledger(epsilon=100.0, delta=delta)
    ledger.charge(1.0, joint([sigma * math.sqrt(groups)] * groups))
    noise = rng.normal(size=(200_000, groups)) * sigma * math.sqrt(groups)
    without, with_record = noise.sum(1), (noise + 1.0).sum(1)
    for cut in np.linspace(-30, 60, 30):
        false_alarm, hit = float((without > cut).mean()), float((with_record > cut).mean())
        assert hit <= math.exp(ledger.value) * false_alarm + delta + 0.01
    naive = Ledger(epsilon=100.0, delta=delta)
    naive.charge(1.0, sigma * math.sqrt(groups))
    assert ledger.value > naive.value, "each group by itself would be counted as if it were alone"


def test_poisson_batches() -> None:
    sizes = [len(independent(1000, 20, step, 0)) for step in range(300)]
    assert np.mean(sizes) == pytest.approx(20, abs=1) and np.var(sizes) == pytest.approx(19.6, rel=0.3)
    assert independent(1000, 20, 5, 0) == independent(1000, 20, 5, 0) != independent(1000, 20, 6, 0)
    assert independent(3, 5, 0, 0) == [0, 1, 2]
    assert any(not independent(100, 1, step, 0) for step in range(20))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip": 1.0, "clip_bounds": (2.0, 3.0)}, "clip is 1.0, and clip_bounds are 2.0 and 3.0"),
        ({"noise": 0.1, "noise_bounds": (0.3, 1.0)}, "noise is 0.1, and noise_bounds are 0.3 and 1.0"),
        ({"epsilon": 0.0}, "greater than 0"),
        ({"delta": 1.0}, "less than 1"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Privacy(**settings)


def test_settings_that_have_no_use() -> None:
    for unused in ({"epochs": 2}, {"minibatches": 2}, {"clip_norm": 1.0}, {"mask": "m"}):
        with pytest.raises(ValidationError, match=f"leave out {next(iter(unused))}"):
            Learning(**{"clip_norm": None, "privacy": Privacy(), **unused})


def test_budgets_that_allow_nothing(folder: Path) -> None:
    own = policy(folder)
    with pytest.raises(UserError, match="does not allow a single step"):
        learner(own, noise=0.3, epsilon=0.1)
    with pytest.raises(UserError, match=r"epsilon 1e-05 cannot be kept over 50 steps"):
        learner(own, epsilon=1e-5)
    with pytest.raises(UserError, match=r"learner.privacy is for an sft stage"):
        Learner(own, Learning(clip_norm=None, privacy=Privacy()), seed=0, num_steps=1)


@pytest.mark.slow
def test_clipped_sums_are_those_of_opacus() -> None:
    """A linear layer, whose gradients of single records Opacus clips and sums."""
    opacus = pytest.importorskip("opacus")
    from opacus.optimizers import DPOptimizer

    x, y = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.arange(5) % 2
    layer = torch.nn.Linear(3, 2, bias=False)
    gradients = [
        {
            "w": torch.autograd.grad(
                torch.nn.functional.cross_entropy(layer(x[i : i + 1]), y[i : i + 1]), layer.weight
            )[0]
        }
        for i in range(5)
    ]
    found = _Separate(np.zeros(5, np.float32), [{}] * 5, gradients)
    norms_GN = found.norms([["w"]])
    bound = float(norms_GN.median())
    ours = found.weighted([["w"]], (bound / norms_GN).clamp_max(1.0))["w"]
    wrapped = opacus.GradSampleModule(layer, loss_reduction="sum")
    plain = torch.optim.SGD(wrapped.parameters(), lr=1.0)
    optimizer = DPOptimizer(
        plain, noise_multiplier=0.0, max_grad_norm=bound, expected_batch_size=5, loss_reduction="sum"
    )
    torch.nn.functional.cross_entropy(wrapped(x), y, reduction="sum").backward()
    optimizer.clip_and_accumulate()
    assert torch.allclose(layer.weight.summed_grad, ours, atol=1e-5)
