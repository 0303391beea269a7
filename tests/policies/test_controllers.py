"""Controllers: the distribution by hand, strengths by sentence, what gets a gradient, and sampling as scored."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from posttrain.engines import Sampling, wait_for
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Controllers, Model
from posttrain.policies.controllers import ControlledPolicy
from posttrain.policies.loading import load_policy
from posttrain.signals import ENTROPY, LOGP, SCORE
from posttrain.stages.sft import demonstration, example_from
from posttrain.training.learner import evaluate_examples
from posttrain.types import Segment, Task, Trajectory

CPU = torch.device("cpu")
TEXT = " ab. cde. f."


def task(eps: Any = None) -> Task:
    fields = {} if eps is None else {"eps": eps}
    return Task(key="t", prompt="Idea. (qhb):", demonstrations=(TEXT,), fields=fields)


def policy(random: bool = True, **settings: Any) -> ControlledPolicy:
    controllers = replace(Controllers(count=2, rows=3, hidden=4), **settings)
    made = cast(
        ControlledPolicy, load_policy("policy", Model(source="pebble", controllers=controllers, trained=True), {}, CPU)
    )
    if random:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in (made.steering.matrices, made.steering.out.weight):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return made


def logps(model: Any, of: Task, text: str = TEXT) -> np.ndarray:
    example = example_from(demonstration(model, of, text, 0, 0, 0))
    return np.asarray(evaluate_examples(model, [example], frozenset({LOGP, ENTROPY}), max_tokens=512)[0][LOGP])


def test_strengths_of_zero_and_new_matrices_are_the_base_to_the_bit() -> None:
    base = load_policy("policy", Model(source="pebble"), {}, CPU)
    plain = logps(base, task())
    for model, eps in ((policy(), None), (policy(), [[0.0, 0.0]]), (policy(random=False), [[1.0, -1.0]])):
        np.testing.assert_array_equal(logps(model, task(eps)), plain)
    assert np.abs(logps(policy(), task([[1.0, 0.0]])) - plain).max() > 0.01


def test_the_distribution_by_the_formula() -> None:
    """log softmax over v of h . (e_v + sum_k eps_k W_k e_v), token by token."""
    model, eps = policy(), [0.5, -1.0]
    found = logps(model, task([eps]))
    example = example_from(demonstration(model, task(), TEXT, 0, 0, 0))
    ids = torch.as_tensor(example.token_ids)
    from posttrain.policies import Packed

    with torch.no_grad():
        hidden_LD = model.body.hidden(Packed(token_ids_L=ids, starts=(0, len(ids))))
        embedding_VD = model.body.get_parameter("model.embed_tokens.weight")
        shift_DD = sum(e * w for e, w in zip(eps, model.steering.matrices, strict=True))
        logits_LV = hidden_LD @ (embedding_VD + embedding_VD @ shift_DD.T).T  # type: ignore[union-attr]
        wanted_L = logits_LV.log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]
    np.testing.assert_allclose(found, wanted_L[-len(found) :].numpy(), atol=2e-5)


def test_strengths_change_at_the_end_of_a_sentence_and_the_last_row_is_repeated() -> None:
    model = policy()
    one, other = logps(model, task([[1.0, 0.0]])), logps(model, task([[0.0, 1.0]]))
    rows = logps(model, task([[1.0, 0.0], [0.0, 1.0]]))
    ids = demonstration(model, task(), TEXT, 0, 0, 0).segments[-1].token_ids
    texts = [model.tokenizer.decode([i]) for i in ids]
    first = next(i for i, text in enumerate(texts) if text.rstrip().endswith(".")) + 1
    np.testing.assert_allclose(rows[:first], one[:first], atol=1e-6)
    np.testing.assert_allclose(rows[first:], other[first:], atol=1e-6)
    assert np.abs(one - other)[first:].max() > 0.01, "the stop in the prompt ends no sentence"


def test_strengths_are_clipped_and_others_are_refused() -> None:
    model = policy()
    np.testing.assert_array_equal(logps(model, task([[3.0, 0.0]])), logps(model, task([[1.0, 0.0]])))
    for eps in ([1.0, 0.0], [[1.0]], [[0.0, 1.0]] * 4, [[float("nan"), 0.0]], [], "x", [["a", "b"]]):
        with pytest.raises(UserError, match="a list of 1 to 3 rows of 2 numbers"):
            model.prompt(task(eps))


def gradients(model: ControlledPolicy, of: Task) -> dict[str, float]:
    from posttrain.training.packing import pack

    packed = pack([example_from(demonstration(model, of, TEXT, 0, 0, 0))], np.ones(1, np.float32), CPU)
    signals = model.evaluate(packed.packed, packed.positions_T)
    signals[LOGP].sum().backward()
    return {n: 0.0 if p.grad is None else float(p.grad.abs().sum()) for n, p in model.named_parameters()}


def test_what_gets_a_gradient() -> None:
    model = policy()
    found = gradients(model, task([[1.0, 0.0]]))
    assert {name for name, size in found.items() if size} == {"steering.matrices"}
    assert model.steering.matrices.grad is not None
    assert model.steering.matrices.grad[0].abs().sum() > 0 and model.steering.matrices.grad[1].abs().sum() == 0
    model = policy()
    planned = {name for name, size in gradients(model, task("planned")).items() if size}
    assert "steering.matrices" not in planned and "steering.out.weight" in planned
    assert all(name.startswith("steering.") for name in planned)
    model = policy()
    plain = {name for name, size in gradients(model, task()).items() if size}
    assert plain and not any(name.startswith("steering.") for name in plain)
    assert any(n.startswith("body.") for n, size in gradients(policy(alone=False), task([[1.0, 0.0]])).items() if size)


@pytest.mark.parametrize("eps", [None, [[1.0, -1.0], [-0.5, 1.0]], "planned"])
def test_what_is_sampled_is_scored_the_same(eps: Any) -> None:
    model = policy(ends=(".", "e", "a"))
    own = task(eps)
    server = Native(slots=4).serve(model, 0)
    prompt = model.prompt(own)

    async def sample() -> Any:
        sampler = server.bind("t")
        return await sampler.sample(prompt.token_ids, 3, Sampling(max_tokens=24), prompt.vectors)

    for completion in wait_for(sample()):
        written = Segment(actor="policy", token_ids=completion.token_ids, trained=True, text=completion.text)
        example = example_from(Trajectory(task=own, segments=(prompt, written), stop_reason="stop"))
        found = evaluate_examples(model, [example], frozenset({LOGP}), max_tokens=512)[0][LOGP]
        np.testing.assert_allclose(found, completion.logp, atol=2e-4)


def test_it_is_saved_with_its_model_and_copied(tmp_path: Path) -> None:
    model, own = policy(), task([[1.0, -0.5]])
    model.save(tmp_path)
    again = load_policy("policy", Model(source=str(tmp_path)), {}, CPU)
    np.testing.assert_array_equal(logps(again, own), logps(model, own))
    copy = load_policy("reference", Model(source="role:policy"), {"policy": model}, CPU)
    np.testing.assert_array_equal(logps(copy, own), logps(model, own))
    scores = load_policy("reward", Model(source="role:policy", head="reward", trained=True), {"policy": model}, CPU)
    example = example_from(demonstration(model, own, TEXT, 0, 0, 0))
    assert not evaluate_examples(scores, [example], frozenset({SCORE}), max_tokens=512)[0][SCORE].any()
    frozen = {name for name, p in scores.named_parameters() if not p.requires_grad}
    assert frozen and all(name.startswith("steering.") for name in frozen)
    with pytest.raises(UserError, match="need"):
        load_policy("policy", Model(source=str(tmp_path), controllers=Controllers(count=5)), {}, CPU)
