"""Gradients have the same bits for every number of learners, and those of one process."""

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.cluster._gang import dealt, join, types_of, work
from posttrain.cluster._sums import GroupBroken, Sums
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.reducers.tokens import Tokens
from posttrain.models import LoRA, Model
from posttrain.policies import Policy, _signals, vocabulary
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.signals import ADVANTAGE, BEHAVIOR_LOGP, OLD_LOGP
from posttrain.training.averages import Averages
from posttrain.training.learner import InProcess, Learner, Loss, Slice
from posttrain.training.packing import Example, MicroBatch
from posttrain.training.settings import Learning

LOSS = Loss(per_token=PPOClip(), reducer=Tokens())


def examples(count: int = 12) -> list[Example]:
    """Sequences of 8 to 64 tokens, the second half trained."""
    rng = np.random.default_rng(3)
    made = []
    for place in range(count):
        length = int(rng.integers(8, 64))
        trained = length - length // 2
        columns = {name: rng.normal(-5.5, 0.1, trained).astype(np.float32) for name in (BEHAVIOR_LOGP, OLD_LOGP)}
        made.append(
            Example(
                token_ids=rng.integers(0, 256, length),
                positions=np.arange(length // 2, length),
                columns={**columns, ADVANTAGE: np.full(trained, rng.normal(), np.float32)},
                turn_T=np.zeros(trained, np.int64),
                group=place,
            )
        )
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sums")
    for name, tied in (("tied", True), ("untied", False)):
        new_folder(made / name, layers=2, width=32, heads=2, kv_heads=1, context=128, tied=tied)
    return made


@pytest.fixture
def policy_with(folder: Path) -> Callable[..., Policy]:
    """A policy of the same weights each time."""

    def load(tied: bool = True, **settings: Any) -> Policy:
        torch.manual_seed(0)
        source = str(folder / ("tied" if tied else "untied"))
        return load_policy("policy", Model(source=source, trained=True, **settings), {}, torch.device("cpu"))

    return load


def together(members: list[Callable[[int, Any], Any]], place: Path) -> list[Any]:
    """The results of threads that form a group, in place of processes."""
    found: list[Any] = [None] * len(members)

    def run(rank: int) -> None:
        try:
            found[rank] = members[rank](rank, join(str(place), rank, len(members), 30.0))
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


class Threads(InProcess):
    """Workers that are threads, each with a policy of its own."""

    def __init__(self, others: list[Policy], place: Path) -> None:
        self.others, self.place = others, place

    def slices(self, learner: Learner, batches: Iterable[MicroBatch], loss: Loss, progress: float) -> Iterator[Slice]:
        every, size = list(batches), len(self.others) + 1
        types = types_of(learner.parameters)

        def member(rank: int, group: Any) -> Any:
            policy = [learner.policy, *self.others][rank]
            weights = dict(policy.named_parameters())
            sums = Sums(group, rank, size, {name: weights[name] for name in types}, types)
            return work(sums, policy, list(types), dealt(every, rank, size), len(every), loss, progress)

        results = together([member] * size, self.place)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        for name, gradient in results[0][1].items():
            learner.parameters[name].grad = gradient
        yield from (piece for _, piece in sorted((d for r in results for d in r[0]), key=lambda item: item[0]))


def bits(learner: Learner) -> dict[str, bytes]:
    return {
        name: p.grad.contiguous().view(torch.uint8).numpy().tobytes()
        for name, p in learner.parameters.items()
        if p.grad is not None
    }


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "float32": ({}, {}),
    "bfloat16 with masters": ({"dtype": "bfloat16"}, {}),
    "bfloat16 alone": ({"dtype": "bfloat16"}, {"master_weights": False}),
    "untied": ({"tied": False, "dtype": "bfloat16"}, {}),
    "adapters": ({"lora": LoRA(rank=2)}, {}),
    "adapters of the last layer": ({"tied": False, "lora": LoRA(rank=2, targets=("q_proj", "lm_head"))}, {}),
}


@pytest.mark.parametrize(
    "large",
    [
        pytest.param("", id="small"),
        pytest.param("one product", id="large vocabulary", marks=pytest.mark.slow),
        pytest.param("chunks", id="in chunks", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_gradients_are_those_of_one_process_bit_for_bit(
    kind: str, large: str, policy_with: Callable[..., Policy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large vocabulary, gradients go straight to the sum: those of a single product, or of one chunk of logits
    after the other.
    """
    model, learning = KINDS[kind]
    if large == "chunks":
        monkeypatch.setattr(_signals, "CHUNK_LOGITS", 1)
    if large:
        monkeypatch.setattr(vocabulary, "LARGE", 1)
    settings = Learning(micro_batch_tokens=96, **learning)

    def after(size: int) -> tuple[dict[str, bytes], float, dict[str, float]]:
        learner = Learner(policy_with(**model), settings, seed=0, num_steps=1)
        if size:
            learner.workers = Threads([policy_with(**model) for _ in range(size - 1)], tmp_path / f"{size}")
        averages = Averages()
        total, _ = learner.accumulate(examples(), LOSS, 0.0, averages)
        return bits(learner), total, averages.means()

    plain = after(0)
    assert plain[0]
    assert len(Learner(policy_with(**model), settings, seed=0, num_steps=1)._parts(examples(), LOSS)) > 4
    for size in (1, 2, 3, 4):
        assert after(size) == plain, f"{size} learners"


def test_another_order_of_sums_has_other_bits(policy_with: Callable[..., Policy]) -> None:
    """So the law can fail: the rounds' sums, as a reduce-scatter adds them up, are not the sum in order."""
    settings = Learning(micro_batch_tokens=96)
    learner = Learner(policy_with(), settings, seed=0, num_steps=1)
    parts = learner._parts(examples(), LOSS)
    pieces = []
    for batch in learner._micro_batches(examples(), LOSS, parts):
        Slice.of(learner.policy, batch, LOSS, 0.0)
        pieces.append({name: p.grad.clone() for name, p in learner.parameters.items() if p.grad is not None})
        learner.policy.zero_grad()
    learner.accumulate(examples(), LOSS, 0.0)
    differ = False
    for name, own in learner.parameters.items():
        rounds = [pieces[k][name] + pieces[k + 1][name] for k in range(0, len(pieces) - 1, 2)]
        rounds += [pieces[-1][name]] * (len(pieces) % 2)
        differ |= not torch.equal(sum(rounds[1:], rounds[0]), own.grad)
    assert differ


def test_a_weight_that_no_slice_uses_has_no_gradient_and_minus_zero_stays(tmp_path: Path) -> None:
    """Three slices on two processes; of "a" the first has -0.0 and the others nothing; "b" has nothing at all."""
    weights = {"a": torch.zeros(3), "b": torch.zeros(2), "c": torch.zeros(2, 2)}
    pieces: list[dict[str, Any]] = [
        {"a": torch.full((3,), -0.0), "b": None, "c": torch.full((2, 2), 1e8)},
        {"a": None, "b": None, "c": torch.full((2, 2), -1e8)},
        {"a": None, "b": None, "c": torch.full((2, 2), 1.5)},
    ]

    def member(rank: int, group: Any) -> Any:
        sums = Sums(group, rank, 2, weights, types_of(weights))
        sums.round(pieces[rank], [True, True])
        sums.round(pieces[2] if rank == 0 else None, [True, False])
        return sums.gathered()

    found = together([member, member], tmp_path / "store")
    assert found[1] == {}
    assert set(found[0]) == {"a", "c"}
    assert torch.signbit(found[0]["a"]).all()
    assert torch.equal(found[0]["c"], torch.full((2, 2), 1.5))  # (1e8 - 1e8) + 1.5; in another order 0


def test_a_lost_member_is_an_error_and_no_wait(tmp_path: Path) -> None:
    weights = {"a": torch.zeros(4)}
    joined = threading.Barrier(2)

    def stays(rank: int, group: Any) -> Any:
        joined.wait(30)
        sums = Sums(group, rank, 2, weights, types_of(weights))
        sums.round({"a": torch.ones(4)}, [True, True])

    def leaves(rank: int, group: Any) -> Any:
        joined.wait(30)  # one that leaves before all are connected is an error of joining
        del group

    found = together([stays, leaves], tmp_path / "store")
    assert isinstance(found[0], GroupBroken) and "a learner is gone" in str(found[0])


def test_slices_are_dealt_in_turns() -> None:
    every: Any = list("abcdefg")
    assert [list(dealt(every, rank, 3)) for rank in range(3)] == [
        [(0, "a"), (3, "d"), (6, "g")],
        [(1, "b"), (4, "e")],
        [(2, "c"), (5, "f")],
    ]
