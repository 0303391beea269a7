"""A policy that is sharded over learners has the bits of one process: weights, norms, moments, signals."""

import multiprocessing
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from posttrain.cluster._gang import dealt
from posttrain.cluster._groups import Pieces, cut, owners
from posttrain.cluster._part import Part, join_mesh, leave_mesh
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.optimizers.muon import Muon
from posttrain.components.reducers.tokens import Tokens
from posttrain.models import LoRA, Model
from posttrain.policies import _signals, vocabulary
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.signals import SCORE, VALUE
from posttrain.training.learner import Asked, Learner, Loss
from posttrain.training.settings import Learning
from posttrain.training.updates import total_norm
from posttrain.types import PerToken
from posttrain.types import Tokens as Batch
from tests.cluster.test_sums import examples
from tests.policies.made_models import make_folder

ADAMW = AdamW(lr=1e-2, weight_decay=0.1)


def squares(tokens: Batch) -> PerToken:
    """A loss of a critic."""
    return PerToken(loss_T=(tokens[VALUE] - 1.0) ** 2, metrics={})


def scores(tokens: Batch) -> PerToken:
    """A loss of a reward model."""
    return PerToken(loss_T=(tokens[SCORE] - 1.0) ** 2, metrics={})


TEXT = Loss(per_token=PPOClip(), reducer=Tokens())
NUMBERS = Loss(per_token=squares, reducer=Tokens(), needs=frozenset({VALUE}))
REWARDS = Loss(per_token=scores, reducer=Tokens(), needs=frozenset({SCORE}))
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any], Loss]] = {
    "float32, tied": ("tiny", {}, {"clip_norm": 0.1}, TEXT),
    "untied": ("untied", {}, {"clip_norm": 0.1}, TEXT),
    "bfloat16 with masters": ("tiny", {"dtype": "bfloat16"}, {"clip_norm": 0.1}, TEXT),
    "bfloat16 alone": ("tiny", {"dtype": "bfloat16"}, {"master_weights": False}, TEXT),
    "adapters": ("tiny", {"lora": LoRA(rank=2)}, {"clip_norm": 0.1}, TEXT),
    "adapters on bfloat16": ("tiny", {"dtype": "bfloat16", "lora": LoRA(rank=2)}, {}, TEXT),
    "value head": ("tiny", {"head": "value"}, {}, NUMBERS),
    "value head on bfloat16": ("tiny", {"head": "value", "dtype": "bfloat16"}, {"clip_norm": 0.1}, NUMBERS),
    "reward head": ("tiny", {"head": "reward"}, {"clip_norm": 0.1}, REWARDS),
    "reward head with adapters": ("tiny", {"head": "reward", "lora": LoRA(rank=2)}, {}, REWARDS),
    "a body of transformers": ("other", {}, {"clip_norm": 0.1}, TEXT),
    "float32, in chunks": ("tiny", {}, {"clip_norm": 0.1}, TEXT),
    "bfloat16, in chunks": ("tiny", {"dtype": "bfloat16"}, {"clip_norm": 0.1}, TEXT),
    "untied bfloat16, in chunks": ("untied", {"dtype": "bfloat16"}, {"clip_norm": 0.1}, TEXT),
    "layers computed twice": ("tiny", {}, {"clip_norm": 0.1, "recompute": True}, TEXT),
    "bfloat16, layers computed twice": ("tiny", {"dtype": "bfloat16"}, {"recompute": True}, TEXT),
    "adapters, layers computed twice": ("tiny", {"lora": LoRA(rank=2)}, {"recompute": True}, TEXT),
    "moments in files": ("tiny", {"dtype": "bfloat16"}, {"clip_norm": 0.1, "offload": tempfile.gettempdir()}, TEXT),
    "muon": ("tiny", {}, {"optimizer": Muon(lr=1e-2, weight_decay=0.1)}, TEXT),
}
UPDATES = 2


@contextmanager
def chunks(kind: str) -> Iterator[None]:
    """For some kinds, logits and their gradients are those of a large vocabulary: by chunks of tokens."""
    with ExitStack() as stack:
        if kind.endswith("in chunks"):
            stack.enter_context(patch.object(_signals, "CHUNK_LOGITS", 1))
            stack.enter_context(patch.object(vocabulary, "LARGE", 1))
        yield


def policy_of(folder: Path, model: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return load_policy("policy", Model(source=str(folder), trained=True, **model), {}, torch.device("cpu"))


def settings_of(learning: dict[str, Any]) -> Learning:
    return Learning(**{"micro_batch_tokens": 96, "optimizer": ADAMW, **learning})


def bits(tensors: Any) -> dict[str, bytes]:
    return {n: t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for n, t in tensors.items()}


def batches_of(learner: Learner, loss: Loss) -> list[Any]:
    own = examples()
    return list(learner._micro_batches(own, loss, learner._parts(own, loss)))


def alone(folder: Path, kind: str) -> dict[str, Any]:
    """What one process has after some updates."""
    name, model, learning, loss = KINDS[kind]
    policy = policy_of(folder / name, model)
    learner = Learner(policy, settings_of(learning), seed=0, num_steps=UPDATES)
    norms = [learner.step(examples(), loss, progress=0.0).metrics["gradient_norm"] for _ in range(UPDATES)]
    asked = Asked(policy=policy, needs=loss.needs)
    signals = [bits({str(s): v for s, v in asked.of(batch).items()}) for batch in batches_of(learner, loss)]
    return {
        "norms": norms,
        "weights": bits(dict(policy.named_parameters())),
        "state": bits(learner.state()[1]),
        "signals": signals,
    }


def member(folder: Path, kind: str, rank: int, size: int, mesh: Any) -> dict[str, Any]:
    """The same by one of several learners; the results are those of the first."""
    from torch import distributed

    dist: Any = distributed
    name, model, learning, loss = KINDS[kind]
    policy = policy_of(folder / name, model)
    settings = settings_of(learning)
    every = batches_of(Learner(policy, settings, seed=0, num_steps=UPDATES), loss)
    assert len(every) > 4 and len(every) % 4  # so that some learners have a slice less
    part = Part(policy_of(folder / name, model), mesh, settings)
    norms = []
    for _ in range(UPDATES):
        part.slices(list(dealt(every, rank, size)), every[0], len(every), loss, 0.0)
        found: list[Any] = [None] * size
        dist.all_gather_object(found, part.norms())
        by_name = {n: norm for own in found for n, norm in own.items()}
        norm = total_norm([by_name[n] for n in part.trained if n in by_name])
        norms.append(float(norm))
        part.update(norm, 1.0, policy if rank == 0 else None)
    state = part.state()
    part.load_state(state)
    part.reset()
    part.load_state(state)
    again = part.state()
    asked = Asked(policy=part.policy, needs=loss.needs)
    signals = part.signals(asked, every)
    measured: list[Any] = [None] * size
    dist.all_gather_object(measured, part.bytes())
    return {
        "norms": norms,
        "weights": bits(dict(policy.named_parameters())),
        "state": bits(state),
        "again": bits(again),
        "signals": [bits({str(s): v for s, v in own.items()}) for own in signals],
        "bytes": measured,
    }


def learners(folder: Path, rank: int, kinds: list[str], results: Any) -> None:
    """A process that is a learner of groups of 2, 3 and 4."""
    torch.set_num_threads(1)
    try:
        for size in (2, 3, 4):
            if rank >= size:
                continue
            mesh = join_mesh(str(folder / f"store-{size}"), rank, size, 900.0)  # the others are at smaller groups
            for kind in kinds:
                with chunks(kind):
                    found = member(folder, kind, rank, size, mesh)
                if rank == 0:
                    results.put((size, kind, found))
            leave_mesh()
    except BaseException:
        results.put((rank, "failed", traceback.format_exc()))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[int, str], Any]]:
    """What groups of 2, 3 and 4 learners found, of every kind."""
    folder = tmp_path_factory.mktemp("sharded")
    new_folder(folder / "tiny", layers=2, width=36, heads=2, kv_heads=1, context=128)
    new_folder(folder / "untied", layers=2, width=36, heads=2, kv_heads=1, context=128, tied=False)
    make_folder(folder / "other", "GPT2Config", {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 128})
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.cluster.test_sharded", "torch.distributed.fsdp"])
    results: Any = context.Queue()
    kinds = list(KINDS)
    processes = [context.Process(target=learners, args=(folder, rank, kinds, results)) for rank in range(4)]
    for process in processes:
        process.start()
    found: dict[tuple[int, str], Any] = {}
    try:
        while len(found) < 3 * len(kinds):
            size, kind, own = results.get(timeout=900)
            assert kind != "failed", own
            found[size, kind] = own
    finally:
        for process in processes:
            process.kill()
            process.join()
    return folder, found


def test_the_largest_weights_come_first_to_who_has_least() -> None:
    assert owners({"a": 5, "b": 9, "c": 5, "d": 1}, 2) == {"b": 0, "a": 1, "c": 1, "d": 0}
    assert owners({"a": 5}, 3) == {"a": 0}


def test_rows_are_cut_as_torch_cuts_them() -> None:
    """Five rows for four: 2, 2, 1, none."""
    assert [cut((5, 2), rank, 4) for rank in range(4)] == [slice(0, 2), slice(2, 4), slice(4, 5), slice(5, 5)]
    rows = torch.arange(5)
    assert [rows[cut((5,), rank, 4)].tolist() for rank in range(3)] == [c.tolist() for c in torch.chunk(rows, 4)]


def test_what_torch_packed_is_put_together_again() -> None:
    """Weights of 3 rows of 2 and of 1 row, for two: 2 rows and 1 row a learner, padded with zeros."""
    taken: dict[str, Any] = {}

    def take(given: Any, used: Any) -> None:
        taken.update({name: tensor.tolist() for name, tensor in given.items()})

    pieces = Pieces({"a": torch.Size([3, 2]), "b": torch.Size([1])}, 2, take)
    output = torch.ones(5)
    pieces(output, torch.tensor([1.0, 2, 3, 4, 9, 5, 6, 0, 0, 0]), None, None)
    assert taken == {"a": [1, 2, 3, 4, 5, 6], "b": [9]}
    assert output.tolist() == [0.0] * 5


@pytest.mark.slow
def test_three_learners_share_what_training_takes(sharded: Any) -> None:
    """Of a tied model of float32: gradients of 4 bytes a weight and two moments, each with one owner; rows are padded
    nowhere in what is counted.
    """
    folder, found = sharded
    policy = policy_of(folder / "tiny", {})
    numbers = sum(p.numel() for p in policy.parameters())
    steps = 4 * len(dict(policy.named_parameters()))
    measured = found[3, "float32, tied"]["bytes"]
    assert sum(own["gradients"] for own in measured) == 4 * numbers
    assert sum(own["optimizer"] for own in measured) == 8 * numbers + steps
    assert sum(own["weights"] for own in measured) == 2 * 4 * numbers  # rows, and whole with the owner
    assert max(own["optimizer"] for own in measured) < 0.5 * (8 * numbers + steps)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_two_three_and_four_learners_have_the_bits_of_one(kind: str, sharded: Any) -> None:
    folder, found = sharded
    with chunks(kind):
        own = alone(folder, kind)
    assert own["norms"][0] > 0
    for size in (2, 3, 4):
        there = found[size, kind]
        assert there["norms"] == own["norms"], size
        for what in ("weights", "state", "signals"):
            assert there[what] == own[what], (size, what)
        assert there["again"] == there["state"]
