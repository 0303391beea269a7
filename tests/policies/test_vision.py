"""A decoder that sees: patches as vectors, the same function when sampled and when learned from, saved as a folder."""

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes import VisionShape
from posttrain.datasets.images import write_png
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Packed
from posttrain.policies._byte_tokenizer import IMAGE_TOKEN
from posttrain.policies._prompts import patches_of
from posttrain.policies._shape import Vision
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy
from posttrain.signals import LOGP
from posttrain.training.learner import evaluate_examples
from posttrain.training.packing import Example, example_of
from posttrain.types import Image, Segment, Task
from tests.policies.made_models import CPU, load


def picture(seed: int, height: int = 8, width: int = 8) -> Image:
    rng = np.random.default_rng(seed)
    return Image(data=write_png(rng.integers(0, 256, (height, width, 3)).astype(np.uint8)))


def asked(*images: Image, text: str = "<image>What?", key: str = "task") -> Task:
    return Task(key=key, prompt=text, images=images)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of patches that are large enough to matter."""
    path = tmp_path_factory.mktemp("models") / "sees"
    vision = VisionShape(patch=4, size=12)
    new_folder(path, layers=2, width=32, heads=4, kv_heads=2, context=96, words=("What",), vision=vision)
    policy = load(path)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    policy.save(path)
    return path


@pytest.fixture
def policy(folder: Path) -> LanguageModelPolicy:
    return load(folder, trained=True)


def pack(segments: Sequence[Segment]) -> Packed:
    starts = (0, *accumulate(map(len, segments)))
    vectors = [np.zeros((len(s), 54), np.float32) if s.vectors is None else s.vectors for s in segments]
    return Packed(
        token_ids_L=torch.from_numpy(np.concatenate([s.token_ids for s in segments])),
        starts=starts,
        vectors_LD=torch.from_numpy(np.concatenate(vectors)),
    )


def test_patches_by_hand() -> None:
    pixels = np.zeros((2, 3, 3), np.uint8)
    pixels[0, 2] = (255, 0, 51)
    patches = patches_of(Image(data=write_png(pixels)), Vision(patch=2, size=4, token_id=0))
    assert patches.shape == (2, 12 + 2 + 2)
    dark = [-1.0] * 12
    # The second patch is the third column and one of black, filled up.
    lit = [1.0, -1.0, 51 / 127.5 - 1, *dark[3:]]
    np.testing.assert_allclose(patches[0], [*dark, 1, 0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(patches[1], [*lit, 1, 0, 0, 1], atol=1e-6)


def test_a_prompt_has_a_token_a_patch_where_its_image_is(policy: LanguageModelPolicy) -> None:
    small = picture(1, 4, 8)
    prompt = policy.prompt(asked(picture(0), small, text="A<image>B<image>C"))
    token = policy.tokenizer.size - 1
    assert prompt.token_ids.tolist() == [65, *[token] * 4, 66, *[token] * 2, 67]
    assert prompt.text == "A<image>B<image>C" and prompt.vectors is not None
    assert (prompt.vectors[[0, 5, 8]] == 0).all()
    vision = policy.body.shape.vision  # type: ignore[union-attr]
    assert np.array_equal(prompt.vectors[1:5], patches_of(picture(0), vision))
    assert np.array_equal(prompt.vectors[6:8], patches_of(small, vision))


def test_a_chat_has_them_too(policy: LanguageModelPolicy) -> None:
    task = Task(key="t", prompt=({"role": "user", "content": "<image>What?"},), images=(picture(0),))
    prompt = policy.prompt(task)
    token = policy.tokenizer.size - 1
    assert (prompt.token_ids == token).sum() == 4 and "What?" in prompt.text
    assert (
        prompt.vectors is not None
        and (np.abs(prompt.vectors).sum(1) > 0).tolist() == (prompt.token_ids == token).tolist()
    )


def test_words_are_one_token_each(policy: LanguageModelPolicy) -> None:
    assert policy.tokenizer.encode("What?").tolist() == [261, ord("?")]
    assert policy.tokenizer.decode([261, ord("?")]) == "What?"


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (asked(picture(0, 16, 4)), "4 x 16 pixels, and the model takes at most 12"),
        (asked(picture(0), text="What?"), "0 places <image> for 1 images"),
        (asked(picture(0), text=f"<image>{IMAGE_TOKEN}"), "which only images may put there"),
        (asked(Image(data=b"no", name="mine.png")), "mine.png cannot be read"),
    ],
)
def test_what_cannot_be_seen_is_reported(policy: LanguageModelPolicy, task: Task, said: str) -> None:
    with pytest.raises(UserError) as caught:
        policy.prompt(task)
    assert said in str(caught.value) and "task task" in str(caught.value)


def test_a_model_of_text_states_that_it_does_not_see(tmp_path: Path) -> None:
    blind = load(new_folder(tmp_path, layers=1, width=32))
    with pytest.raises(UserError, match="takes text only"):
        blind.prompt(asked(picture(0)))
    sampler = Native().serve(blind, 0).bind("x")
    with pytest.raises(UserError, match="takes text only"):
        asyncio.run(sampler.sample(np.array([1, 2]), 1, Sampling(), np.zeros((2, 4), np.float32)))
    packed = Packed(token_ids_L=torch.tensor([1, 2]), starts=(0, 2), vectors_LD=torch.zeros(2, 4))
    with pytest.raises(UserError, match="text only"):
        blind.body.hidden(packed)


def test_vectors_of_another_width_are_refused(policy: LanguageModelPolicy) -> None:
    sampler = Native().serve(policy, 0).bind("x")
    with pytest.raises(UserError, match=r"takes a vector of 54 numbers .* got an array of shape \(2, 4\)"):
        asyncio.run(sampler.sample(np.array([1, 2]), 1, Sampling(), np.zeros((2, 4), np.float32)))


def hidden(policy: LanguageModelPolicy, segments: Sequence[Segment]) -> list[Tensor]:
    with torch.no_grad():
        return list(policy.body.hidden(pack(segments)).split([len(s) for s in segments]))


def test_packed_neighbours_have_no_effect_with_or_without_images(policy: LanguageModelPolicy) -> None:
    segments = [policy.prompt(asked(picture(i), text="<image>" + "What? " * i)) for i in range(4)]
    segments.insert(2, policy.prompt(Task(key="text", prompt="only text")))
    together = hidden(policy, segments)
    for i, segment in enumerate(segments):
        assert torch.equal(hidden(policy, [segment])[0], together[i])
    text = segments[2]
    plain = policy.body.hidden(Packed(token_ids_L=torch.from_numpy(text.token_ids), starts=(0, len(text))))
    assert torch.equal(plain, together[2]), "a vector of zeros is none"


def test_cached_and_packed_are_the_same_function(policy: LanguageModelPolicy) -> None:
    """A prompt in two pieces, the cut inside its image, then token by token."""
    segments = [policy.prompt(asked(picture(i), text="<image>What is it?" + "!" * i)) for i in range(3)]
    expected = [h[-1] for h in hidden(policy, segments)]
    cache = policy.body.new_cache(3, 32)

    def part(begin: int, end: int | None) -> Packed:
        assert all(s.vectors is not None for s in segments)
        cut = [
            Segment(actor="prompt", token_ids=s.token_ids[begin:end], vectors=s.vectors[begin:end])  # type: ignore[index]
            for s in segments
        ]
        return pack(cut)

    policy.body.extend(cache, [2, 0, 1], part(0, 2))
    states = policy.body.extend(cache, [2, 0, 1], part(2, None))
    torch.testing.assert_close(states, torch.stack(expected), atol=2e-5, rtol=0)


@pytest.mark.parametrize("prefill_tokens", [512, 5])
def test_the_sampler_gives_the_learners_probabilities(policy: LanguageModelPolicy, prefill_tokens: int) -> None:
    server = Native(slots=3, prefill_tokens=prefill_tokens).serve(policy, 0)
    tasks = [asked(picture(i), text="<image>" + "What? " * i, key=f"t{i}") for i in range(3)]
    tasks.append(Task(key="text", prompt="no image"))
    rollout = Independent(n=4, sampling=Sampling(max_tokens=10))

    async def collect() -> list[object]:
        return list(await asyncio.gather(*(rollout.collect(t, {"policy": server.bind(t.key)}) for t in tasks)))

    groups = [group for [group] in asyncio.run(collect())]  # type: ignore[misc]
    attempts = [t for group in groups for t in group]
    # An image token that was sampled is a token like any other.
    results = evaluate_examples(
        policy, [example_of(t, {}) for t in attempts], frozenset({LOGP}), max_tokens=200, temperature=1.0
    )
    for attempt, result in zip(attempts, results, strict=True):
        np.testing.assert_allclose(attempt.behavior_logp, result[LOGP], atol=1e-5)
    assert server.counters.prompt_tokens == sum(len(group.trajectories[0].segments[0]) for group in groups), (
        "once a group"
    )
    scored = asyncio.run(server.bind("x").logp(attempts[0].token_ids, vectors=attempts[0].vectors))
    prompt = len(attempts[0].segments[0])
    np.testing.assert_allclose(scored[prompt - 1 :], attempts[0].behavior_logp, atol=1e-5)


def test_a_completion_does_not_depend_on_what_is_beside_it(policy: LanguageModelPolicy) -> None:
    prompts = [policy.prompt(asked(picture(i))) for i in range(5)]
    sampling = Sampling(max_tokens=8)

    def write(some: Sequence[int], slots: int) -> dict[int, list[tuple[list[int], list[float]]]]:
        server = Native(slots=slots).serve(policy, 0)

        async def all_of() -> list[object]:
            asks = (server.bind(i).sample(prompts[i].token_ids, 3, sampling, prompts[i].vectors) for i in some)
            return list(await asyncio.gather(*asks))

        written = asyncio.run(all_of())
        return {
            i: [(c.token_ids.tolist(), c.logp.tolist()) for c in completions]  # type: ignore[attr-defined]
            for i, completions in zip(some, written, strict=True)
        }

    together = write(range(5), 4)
    assert {i: write([i], 2)[i] for i in range(5)} == together
    assert len({str(v) for v in together.values()}) == 5, "different pictures are answered differently"


def logp_of(policy: LanguageModelPolicy, image: Image, text: str = "red") -> Tensor:
    prompt = policy.prompt(asked(image))
    answer = policy.tokenizer.encode_completion(asked().prompt, text)
    packed = pack([prompt, Segment(actor="policy", token_ids=answer)])
    one = Packed(token_ids_L=packed.token_ids_L, starts=(0, len(packed.token_ids_L)), vectors_LD=packed.vectors_LD)
    assert one.vectors_LD is not None
    vectors = one.vectors_LD.to(next(policy.parameters()).dtype)
    one = Packed(token_ids_L=one.token_ids_L, starts=one.starts, vectors_LD=vectors)
    places = torch.arange(len(prompt), len(one.token_ids_L))
    return policy.evaluate(one, places)[LOGP].sum()


def test_another_picture_or_another_place_changes_what_is_likely(policy: LanguageModelPolicy) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    left, right = pixels.copy(), pixels.copy()
    left[:4, :4], right[:4, 4:] = 255, 255
    seen = [logp_of(policy, Image(data=write_png(p))).item() for p in (pixels, left, right)]
    assert len({round(x, 4) for x in seen}) == 3


def test_the_gradient_of_the_projector_is_that_of_finite_differences(policy: LanguageModelPolicy) -> None:
    policy.double()
    weights = [policy.body.vision.patch.weight, policy.body.vision.place.weight]  # type: ignore[union-attr]
    logp_of(policy, picture(3)).backward()
    for weight in weights:
        assert isinstance(weight, Tensor) and weight.grad is not None
        rng = np.random.default_rng(0)
        for _ in range(6):
            at = tuple(int(rng.integers(n)) for n in weight.shape)
            if weight.grad[at] == 0:  # a row or a column that this picture does not have
                continue
            ends = []
            for step in (1e-5, -1e-5):
                with torch.no_grad():
                    weight[at] += step
                    ends.append(logp_of(policy, picture(3)).item())
                    weight[at] -= step
            assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(weight.grad[at].item(), rel=1e-4, abs=1e-7)
        assert weight.grad.abs().sum() > 0


def test_a_saved_folder_sees_the_same(policy: LanguageModelPolicy, tmp_path: Path) -> None:
    policy.save(tmp_path / "again")
    again = load(tmp_path / "again")
    assert logp_of(again, picture(2)).item() == logp_of(policy, picture(2)).item()
    assert (tmp_path / "again" / "config.json").read_bytes() == policy.origin.config
    copied = load_policy("reference", Model(source="role:policy"), {"policy": policy}, CPU)
    assert isinstance(copied, LanguageModelPolicy)
    assert logp_of(copied, picture(2)).item() == logp_of(policy, picture(2)).item()


def test_seeing_changes_no_other_weight_of_a_new_model(tmp_path: Path) -> None:
    sizes = {"layers": 1, "width": 32, "heads": 2, "words": ("a word",)}
    blind = load(new_folder(tmp_path / "a", **sizes, tied=True))  # type: ignore[arg-type]
    sees = load(new_folder(tmp_path / "b", **sizes, vision=VisionShape()))  # type: ignore[arg-type]
    assert sees.body.vocabulary_size == blind.body.vocabulary_size + 1
    extra = {name for name, _ in sees.named_parameters()} - {name for name, _ in blind.named_parameters()}
    assert extra == {"body.vision.patch.weight", "body.vision.place.weight"}


def test_examples_with_and_without_images_are_learned_from_together(policy: LanguageModelPolicy) -> None:
    prompt = policy.prompt(asked(picture(0)))

    def example(vectors: np.ndarray | None) -> Example:
        ids = np.append(prompt.token_ids, 5)
        given = None if vectors is None else np.concatenate([vectors, np.zeros((1, 54), np.float32)])
        return Example(
            token_ids=ids, positions=np.array([len(prompt)]), columns={}, turn_T=np.zeros(1, np.int64), vectors=given
        )

    def logp(*examples: Example) -> list[float]:
        results = evaluate_examples(policy, list(examples), frozenset({LOGP}), max_tokens=1000, temperature=1.0)
        return [float(r[LOGP][0]) for r in results]

    with_image, without = example(prompt.vectors), example(None)
    assert logp(with_image, without) == [*logp(with_image), *logp(without)]
    assert logp(with_image) != logp(without)
