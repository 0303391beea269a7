"""Encodes the prompt of a task: token ids of its text, and patches of its images.

The vector of a patch holds red, green and blue of its pixels from -1 to 1, row by row, then its row and its column in
the image, one-hot. A picture whose sides are no multiple of the patch is filled up with black at the right and below.
"""

from functools import lru_cache

import numpy as np

from posttrain.datasets.images import pixels_of
from posttrain.errors import UserError
from posttrain.policies import Policy
from posttrain.policies._byte_tokenizer import IMAGE_TOKEN
from posttrain.policies._shape import Vision
from posttrain.policies.decoder import Decoder
from posttrain.types import IMAGE, FloatArray, Image, Message, Segment, Task

Prompt = str | tuple[Message, ...]


def prompt_of(policy: Policy, task: Task) -> Segment:
    """See `posttrain.policies.Policy.prompt`, of a language model."""
    tokenizer = policy.tokenizer
    if not task.images:
        token_ids = tokenizer.encode_prompt(task.prompt)
        text = task.prompt if isinstance(task.prompt, str) else tokenizer.decode(token_ids)
        return Segment(actor="prompt", token_ids=token_ids, text=text)
    vision = policy.body.shape.vision if isinstance(policy.body, Decoder) else None
    if vision is None:
        raise UserError(
            f"task {task.key} has {len(task.images)} images, but the model in the role '{policy.role}' takes text "
            "only; a model that sees is made by source: new with shape.vision, or leave the images out"
        )
    try:
        patches = [patches_of(image, vision) for image in task.images]
        written = _with_patches(task.prompt, [len(patch) for patch in patches])
    except UserError as error:
        raise UserError(f"task {task.key}: {error}") from None
    token_ids = tokenizer.encode_prompt(written, allow=(IMAGE_TOKEN,))
    places = np.flatnonzero(token_ids == vision.token_id)
    if len(places) != sum(map(len, patches)):
        raise UserError(f"task {task.key}: its text holds {IMAGE_TOKEN}, which only images may put there; change it")
    vectors = np.zeros((len(token_ids), vision.vector_width), np.float32)
    vectors[places] = np.concatenate(patches)
    text = task.prompt if isinstance(task.prompt, str) else tokenizer.decode(token_ids)
    return Segment(actor="prompt", token_ids=token_ids, text=text, vectors=vectors)


def _with_patches(prompt: Prompt, lengths: list[int]) -> Prompt:
    """The prompt with as many tokens at the place of each image as it has patches."""
    texts = [prompt] if isinstance(prompt, str) else [message["content"] for message in prompt]
    found = sum(text.count(IMAGE) for text in texts)
    if found != len(lengths):
        raise UserError(f"the prompt has {found} places {IMAGE} for {len(lengths)} images; there must be one for each")
    left = iter(lengths)

    def filled(text: str) -> str:
        first, *rest = text.split(IMAGE)
        return first + "".join(IMAGE_TOKEN * next(left) + part for part in rest)

    if isinstance(prompt, str):
        return filled(prompt)
    copies = [message.copy() for message in prompt]
    for message in copies:
        message["content"] = filled(message["content"])
    return tuple(copies)


@lru_cache(maxsize=4096)
def patches_of(image: Image, vision: Vision) -> FloatArray:
    """[P, vector width] the patches of an image, row by row. Raises `UserError` for one that is too large."""
    pixels_HWC = pixels_of(image)
    height, width, _ = pixels_HWC.shape
    if max(height, width) > vision.size:
        raise UserError(
            f"the image {image.name or image.path or 'in memory'} is {width} x {height} pixels, and the model takes at "
            f"most {vision.size} on a side; scale it down (and any boxes with it), or use a model with a larger "
            "shape.vision.size"
        )
    p = vision.patch
    rows, columns = -(-height // p), -(-width // p)
    full = np.zeros((rows * p, columns * p, 3), np.uint8)
    full[:height, :width] = pixels_HWC
    pixels = full.reshape(rows, p, columns, p, 3).transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)
    row_P, column_P = np.divmod(np.arange(rows * columns), columns)
    one_hot = np.eye(vision.grid, dtype=np.float32)
    patches = np.concatenate([pixels / np.float32(127.5) - 1, one_hot[row_P], one_hot[column_P]], axis=1)
    patches = patches.astype(np.float32)
    patches.setflags(write=False)  # it is shared by all prompts with the same image
    return patches
