"""A language model that reasons in latent steps, vectors that it draws and reads, before it answers in text.

Source: CoLaR, Tan et al. 2025, arXiv:2505.16552, and its released code (xiaomi-research/colar at 4b6ae9a0). After the
prompt, which states how many tokens a step stands for, a head on the last hidden state gives the mean and the std of
the next input embedding, over the scale of the model's embeddings. The steps end where the likeliest token is the mark.

    prompt (Thinking speed: 2)#  |  steps  |  # answer and end

To imitate, a worked solution becomes such a sequence: each chunk of its tokens is one step with their merged embedding,
and the label of a step is one of the chunk's tokens, drawn uniformly, which the language head is trained on.

Differs: merged embeddings are data of a step, so that no gradient goes through them to the embedding. The std of the
head is between e^-5 and e^2. The mark that ends the steps is chosen, not drawn, and has the log-probability 0.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.nn import functional as F

from posttrain.datasets.latents import CLOSING, STEP, merged
from posttrain.errors import UserError
from posttrain.errors.foreign import file_in, guard, read_json, shown
from posttrain.models import LatentSteps, Model
from posttrain.policies import Packed, Policy
from posttrain.policies._modules import LatentInputs
from posttrain.policies._signals import token_signals
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import open_weights, stored_shapes, write_tensors
from posttrain.policies.language_model import LanguageModelPolicy, open_language_model
from posttrain.signals import (
    CERTAINTY,
    ENTROPY,
    LABEL_LOGP,
    LATENT_ERROR,
    LATENT_LOGP,
    LOGIT,
    LOGP,
    SELF_CERTAINTY,
    Signal,
)
from posttrain.types import FloatArray, IntArray, Segment, Task, Trajectory

LATENT: Final = "step_head.safetensors"
"""The file of the head in a model's folder."""
SETTINGS: Final = "step_head.json"
"""The file of the settings."""
_READ: Final = TypeAdapter(LatentSteps)
LEAST, MOST = -5.0, 2.0
"""Bounds of the logarithm of the std."""
_TEXT: Final = frozenset({LOGP, ENTROPY, CERTAINTY, SELF_CERTAINTY, LOGIT})
_LOG_2PI: Final = math.log(2.0 * math.pi)


class LatentHead(nn.Module):
    """Mean and std of the next input embedding, over the scale of the embeddings, which is a constant."""

    scale: Tensor

    def __init__(self, inputs: int, width: int, scale: float) -> None:
        super().__init__()
        self.width = width
        self.first = _linear(inputs, width, 0)
        self.second = _linear(width, width, 1)
        self.norm = nn.LayerNorm(width)
        self.mean = _linear(width, inputs, 2)
        self.log_std = _linear(width, inputs, 3)
        nn.init.zeros_(self.log_std.weight)
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, hidden_TD: Tensor) -> tuple[Tensor, Tensor]:
        """[T, D] mean and log std after hidden states."""
        hidden_TW = self.norm(self.second(F.gelu(self.first(hidden_TD.to(self.first.weight.dtype)))))
        return self.mean(hidden_TW), self.log_std(hidden_TW).clamp(LEAST, MOST)


class LatentPolicy(LanguageModelPolicy):
    """A language model with a latent head."""

    GIVES: ClassVar[Mapping[str, frozenset[Signal]]] = {"language": _TEXT | {LABEL_LOGP, LATENT_LOGP, LATENT_ERROR}}
    called: ClassVar[str] = "model with latent steps"
    compares: ClassVar[bool] = False

    def __init__(self, of: LanguageModelPolicy, settings: LatentSteps, latent: LatentHead) -> None:
        super().__init__(of.role, of.body, of.tokenizer, of.origin, head=of.head, lora=of.lora)
        self.settings, self.step_head = settings, latent
        assert isinstance(self.body, Decoder), "checked before"
        self.body.latents = LatentInputs(float(latent.scale))
        self.body.vector_width = 1 + self.body.width
        mark = self.tokenizer.encode_open(settings.mark)
        if len(mark) != 1:
            raise UserError(f"the mark {settings.mark!r} of latent steps is {len(mark)} tokens here, not one")
        self.mark = int(mark[0])

    def prompt(self, task: Task) -> Segment:
        """The prompt, the number of tokens that a step stands for, and the mark."""
        return self._prompt(task, self.settings.speed)

    def _prompt(self, task: Task, speed: int) -> Segment:
        start = super().prompt(task)
        if start.vectors is not None:
            raise UserError(f"task {task.key} has images, and the model in the role '{self.role}' takes none")
        text = f"(Thinking speed: {speed}){self.settings.mark}"
        ids = np.concatenate([start.token_ids, self.tokenizer.encode_open(text)])
        return Segment(actor="prompt", token_ids=ids, text=start.text + text)

    def demonstration(self, task: Task, text: str, *key: int) -> Trajectory:
        """A worked solution with its chunks merged. The speed is drawn once for a step, the labels for each one.

        Raises `UserError` for a text without an answer after the setting `answer`, or with the mark before it.
        """
        reasoning, found, answer = text.partition(self.settings.answer)
        ids = self.tokenizer.encode_open(reasoning.strip())
        if not found or not len(ids) or self.mark in ids:
            raise UserError(
                f"task {task.key}: a demonstration for latent steps is reasoning, {self.settings.answer!r} and the "
                f"answer, without {self.settings.mark!r} in the reasoning; got {text[:80]!r}"
            )
        speed = int(_drawn(*key[:2]).choice(self.settings.speeds))
        ends = self.tokenizer.encode_completion(task.prompt, found + answer)
        own_CD, count_C = merged(self._embedding(ids), speed, root=self.settings.root)
        first_C = np.cumsum(count_C) - count_C
        labels_C = ids[first_C + _drawn(*key, 1).integers(0, count_C)]
        vectors = np.zeros((len(count_C) + 1 + len(ends), 1 + self.body.width), np.float32)
        vectors[: len(count_C), 0], vectors[len(count_C), 0] = STEP, CLOSING
        vectors[: len(count_C), 1:] = own_CD
        vectors[len(count_C), 1:] = self._embedding(np.array([self.mark]))
        written = np.concatenate([labels_C, [self.mark], ends]).astype(np.int64)
        start = self._prompt(task, speed)
        if len(start) + len(written) > self.context:
            raise UserError(
                f"task {task.key}: prompt ({len(start)} tokens) and demonstration ({len(written)}) exceed the model's "
                f"context of {self.context} tokens; shorten or leave out the row"
            )
        shown = Segment(actor="demonstration", token_ids=written, trained=True, text=found + answer, vectors=vectors)
        return Trajectory(task=task, segments=(start, shown), stop_reason="stop")

    def _embedding(self, ids: IntArray) -> FloatArray:
        """[L, D] input embeddings of tokens over their scale."""
        weight = self.body.get_parameter("model.embed_tokens.weight").detach()
        rows_LD = weight[torch.from_numpy(ids).to(weight.device)].float() / self.step_head.scale
        return rows_LD.cpu().numpy()

    def evaluate(
        self,
        packed: Packed,
        positions_T: Tensor,
        needs: frozenset[Signal] = frozenset(),
        *,
        temperature: float = 1.0,
        others: Mapping[str, Policy] | None = None,
        foresight: float = 0.0,
    ) -> Mapping[Signal, Tensor]:
        """Signals of tokens. The log-probability of a latent step is the mean over dimensions of its log-density, and
        its entropy the mean of theirs; 0 both for the mark that ends the steps.
        """
        self.check_needs(needs, others or {})
        if foresight:
            raise UserError("an objective with foresight is for text, and this model has latent steps")
        hidden_TD = self.body.hidden(packed).index_select(0, packed.before(positions_T))
        signals = token_signals(
            self.body.logits,
            hidden_TD,
            packed.token_ids_L.index_select(0, positions_T),
            vocabulary_size=self.body.vocabulary_size,
            temperature=temperature,
            needs=needs & _TEXT,
        )
        zero_T = torch.zeros_like(signals[LOGP])
        signals |= {LABEL_LOGP: signals[LOGP], LATENT_LOGP: zero_T, LATENT_ERROR: zero_T}
        if packed.vectors_LD is not None:
            own_TV = packed.vectors_LD.index_select(0, positions_T)
            signals |= self._steps(signals, hidden_TD, own_TV.to(hidden_TD.dtype), temperature)
        return {signal: x_T for signal, x_T in signals.items() if signal in needs | {LOGP}}

    def _steps(
        self, signals: Mapping[Signal, Tensor], hidden_TD: Tensor, own_TV: Tensor, temperature: float
    ) -> dict[Signal, Tensor]:
        """The signals with those of latent steps."""
        kind_T = own_TV[:, 0]
        row_R = torch.nonzero(kind_T > 0)[:, 0]
        own_RD = own_TV[row_R, 1:]
        mean_RD, log_std_RD = self.step_head(hidden_TD[row_R])
        logp_R, entropy_R = mean_density(own_RD, mean_RD, log_std_RD, temperature)
        error_R = ((mean_RD - own_RD) ** 2 + (2.0 * log_std_RD).exp()).mean(-1)
        logp_T = torch.zeros_like(signals[LOGP]).index_copy(0, row_R, logp_R.to(signals[LOGP].dtype))
        found = {
            LOGP: torch.where(kind_T == STEP, logp_T, signals[LOGP].masked_fill(kind_T == CLOSING, 0.0)),
            LATENT_LOGP: logp_T,
            LATENT_ERROR: torch.zeros_like(logp_T).index_copy(0, row_R, error_R.to(logp_T.dtype)),
        }
        if ENTROPY in signals:
            entropy_T = torch.zeros_like(logp_T).index_copy(0, row_R, entropy_R.to(logp_T.dtype))
            found[ENTROPY] = torch.where(kind_T == STEP, entropy_T, signals[ENTROPY].masked_fill(kind_T > 0, 0.0))
        return found

    def copied(self, role: str, model: Model) -> LanguageModelPolicy:
        """A copy, with the latent head where the role has one."""
        plain = super().copied(role, model)
        assert isinstance(plain.body, Decoder), "it is a copy of one"
        plain.body.latents, plain.body.vector_width = None, None
        if model.latent_steps is None:
            return plain
        head = LatentHead(plain.body.width, model.latent_steps.width, float(self.step_head.scale))
        if head.width == self.step_head.width:
            head.load_state_dict(self.step_head.state_dict())
        return LatentPolicy(plain, model.latent_steps, head)

    def is_free(self, name: str) -> bool:
        """As of a language model; the head is always trained."""
        return super().is_free(name) or name.startswith("step_head.")

    def _save_head(self, folder: Path) -> None:
        """Write the head."""
        super()._save_head(folder)
        write_tensors(folder / LATENT, self.step_head.state_dict())
        text = json.dumps(_READ.dump_python(self.settings, mode="json"), indent=2)
        (folder / SETTINGS).write_text(text + "\n", encoding="utf-8")


def mean_density(own_RD: Tensor, mean_RD: Tensor, log_std_RD: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """[R] mean over dimensions of the log-density of vectors, and of the entropy of the Gaussians.

    The temperature scales the std.
    """
    log_std_RD = log_std_RD + math.log(temperature)
    z_RD = (own_RD - mean_RD) * (-log_std_RD).exp()
    logp_R = -(0.5 * (z_RD**2 + _LOG_2PI) + log_std_RD).mean(-1)
    return logp_R, (log_std_RD + 0.5 * (1.0 + _LOG_2PI)).mean(-1)


def open_latent(role: str, model: Model, latent: LatentSteps, path: Path) -> LatentPolicy:
    """A policy from a model's folder, with the latent head that was saved there, or a new one."""
    return with_latent(open_language_model(role, model, path), latent, path / LATENT)


def stored_settings(path: Path) -> LatentSteps | None:
    """The settings that a model was saved with; None for a model without latent steps."""
    if not (path / SETTINGS).is_file():
        return None
    with guard(f"'{path / SETTINGS}' does not describe latent steps"):
        return _READ.validate_python(read_json(file_in(path, SETTINGS)))


def with_latent(plain: LanguageModelPolicy, settings: LatentSteps, path: Path | None = None) -> LatentPolicy:
    """A language model with a latent head. Raises `UserError` for one that is not of this package, or sees images."""
    if not isinstance(plain.body, Decoder) or plain.body.vector_width is not None:
        raise UserError("latent steps are for decoders that run natively and take text only; leave latent_steps out")
    weight = plain.body.model.embed_tokens.weight
    head = LatentHead(plain.body.width, settings.width, float(weight.detach().float().std()))
    if path is not None and path.is_file():
        stored, wanted = stored_shapes(path), {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
        if stored != wanted:
            raise UserError(f"the latent head '{path}' has the tensors {shown(stored)}, and this model needs {wanted}")
        with open_weights(file_in(path.parent, path.name)) as file, guard(f"the latent head '{path}' is damaged"):
            head.load_state_dict({name: file.get_tensor(name) for name in wanted})
    return LatentPolicy(plain, settings, head.to(weight.dtype))


def _drawn(*key: int) -> np.random.Generator:
    """Random numbers that are a function of a key."""
    return np.random.default_rng(np.random.SeedSequence([abs(part) for part in key] or 0))


def _linear(inputs: int, outputs: int, seed: int) -> nn.Linear:
    """A layer whose weights are normal with std 1 / sqrt(inputs), and whose bias is 0."""
    linear = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        linear.weight.copy_(torch.randn(outputs, inputs, generator=generator) * inputs**-0.5)
        linear.bias.zero_()
    return linear
