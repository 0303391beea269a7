"""Controllers: matrices that shift the output embeddings of a frozen language model, each by a strength eps.

Source: LDC, Learning to Generate Research Ideas with Dynamic Control, arXiv:2412.14626, of which abstracts were read.
The form below is the additive steering of output embeddings; that it is the paper's is not verified. With the output
embedding e_v of a token, the last hidden state h and a matrix W_k for each of K dimensions:

    log p(v | h) = log softmax_v (h . (e_v + sum_k eps_k W_k e_v))

which is computed as the logits of h + sum_k eps_k W_k^T h. Matrices begin at 0, and with all eps 0 the model is the
base, to the bit. Each eps is clipped to [-1, 1].

eps is constant within a sentence and changes at the token that ends it. Sentence i has row i of the prompt's rows, and
the last row where there are fewer. A planned prompt has no rows: a recurrent network (a gated unit) reads the hidden
state after the prompt and after each sentence, and gives eps = tanh(A g + b) of the next one; then this network alone
gets a gradient, and not the matrices.

The rows are the vector of the prompt's last token (`Segment.vectors`). Where a batch has any, and `alone` is set, base
and output embeddings are constants; a batch without any trains the base as ever. Critics and reward models of such a
policy have its prompts, and no controllers.

L tokens, N sequences, K dimensions, D width, G numbers of the network's state.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from posttrain.errors import UserError
from posttrain.errors.foreign import file_in, guard, read_json, shown
from posttrain.models import Controllers, Model
from posttrain.policies import Packed, Policy
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import open_weights, stored_shapes, write_tensors
from posttrain.policies.language_model import LanguageModelPolicy, open_language_model
from posttrain.signals import Signal
from posttrain.types import FloatArray, Segment, Task

WEIGHTS: Final = "controllers.safetensors"
"""The file of the matrices and the network in a model's folder."""
SETTINGS: Final = "controllers.json"
"""The file of the settings."""
FIELD: Final = "eps"
"""Field of a task with its rows of strengths, one for each sentence, or `PLANNED`."""
PLANNED: Final = "planned"
ROWS, NETWORK = 1.0, 2.0
"""First number of the vector of a prompt's last token: what gives the strengths; 0 for other tokens."""
_READ: Final = TypeAdapter(Controllers)


@dataclass(frozen=True, kw_only=True)
class State:
    """Where a sequence is."""

    kind: float = 0.0
    """0 before the last token of the prompt, then `ROWS` or `NETWORK`."""
    rows: tuple[Tensor, ...] = ()
    """[K] each."""
    sentences: int = 0
    """How many have begun."""
    network_G: Tensor | None = None
    eps_K: Tensor | None = None
    """Strengths of the present sentence; None is 0."""


class Steering(nn.Module):
    """The matrices, and the network that plans strengths."""

    def __init__(self, settings: Controllers, inputs: int) -> None:
        super().__init__()
        self.settings = settings
        self.matrices = nn.Parameter(torch.zeros(settings.count, inputs, inputs))
        self.network = nn.GRUCell(inputs, settings.hidden, device="meta").to_empty(device="cpu")
        self.out = nn.Linear(settings.hidden, settings.count, device="meta").to_empty(device="cpu")
        generator = torch.Generator().manual_seed(settings.seed)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) * settings.hidden**-0.5)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(
        self, hidden_LD: Tensor, packed: Packed, ends: frozenset[int], states: Sequence[State]
    ) -> tuple[Tensor, list[State]]:
        """[L, D] shifted states, and the state of each sequence after its tokens, from that before them."""
        ids = packed.token_ids_L.tolist()
        kinds = [0.0] * len(ids) if packed.vectors_LD is None else packed.vectors_LD[:, 0].tolist()
        zero_K = hidden_LD.new_zeros(self.settings.count)
        strengths, lengths, planned, after = list[Tensor](), list[int](), list[bool](), list[State]()
        for state, begin, end in zip(states, packed.starts, packed.starts[1:], strict=False):
            at = begin
            for place in range(begin, end):
                if not kinds[place] and not (state.kind and ids[place] in ends):
                    continue
                strengths.append(zero_K if state.eps_K is None else state.eps_K)
                lengths.append(place - at)
                planned.append(state.kind == NETWORK)
                at = place
                if kinds[place]:
                    assert packed.vectors_LD is not None, "it has a kind"
                    state = self._begun(kinds[place], packed.vectors_LD[place])
                state = self._next(state, hidden_LD[place])
            strengths.append(zero_K if state.eps_K is None else state.eps_K)
            lengths.append(end - at)
            planned.append(state.kind == NETWORK)
            after.append(state)
        if not any(state.kind for state in after):
            return hidden_LD, after
        length_E = torch.tensor(lengths, device=hidden_LD.device)
        eps_LK = torch.stack(strengths).to(hidden_LD.dtype).repeat_interleave(length_E, 0)
        planned_L1 = torch.tensor(planned, device=hidden_LD.device).repeat_interleave(length_E)[:, None]
        shifted_LD = hidden_LD + self._shift(hidden_LD, eps_LK.masked_fill(planned_L1, 0.0), self.matrices)
        if any(planned):
            own_LK = eps_LK.masked_fill(~planned_L1, 0.0)
            shifted_LD = shifted_LD + self._shift(hidden_LD, own_LK, self.matrices.detach())
        return shifted_LD, after

    def _shift(self, hidden_LD: Tensor, eps_LK: Tensor, matrices_KDD: Tensor) -> Tensor:
        """[L, D] the sum over k of eps_k W_k^T h."""
        moved_LKD = (hidden_LD @ matrices_KDD.transpose(0, 1).flatten(1)).view(len(hidden_LD), len(matrices_KDD), -1)
        return (eps_LK[..., None] * moved_LKD).sum(1)

    def _begun(self, kind: float, vector_V: Tensor) -> State:
        """The state at the last token of a prompt, before its first sentence."""
        rows_RK = vector_V[1:].view(self.settings.rows, self.settings.count)
        return State(kind=kind, rows=tuple(rows_RK.clamp(-1.0, 1.0)))

    def _next(self, state: State, hidden_D: Tensor) -> State:
        """The state at the start of the next sentence."""
        if state.kind == ROWS:
            eps_K = state.rows[min(state.sentences, len(state.rows) - 1)]
            return replace(state, sentences=state.sentences + 1, eps_K=eps_K)
        before = None if state.network_G is None else state.network_G[None]
        network_1G = self.network(hidden_D[None].to(self.out.weight.dtype), before)
        eps_K = self.out(network_1G)[0].tanh()
        return replace(state, sentences=state.sentences + 1, network_G=network_1G[0], eps_K=eps_K)


@dataclass(frozen=True, kw_only=True)
class Steers:
    """What a body calls after its last norm; without a module it only takes the vectors of prompts."""

    module: Steering | None
    ends: frozenset[int]
    alone: bool

    def packed(self, hidden_LD: Tensor, packed: Packed) -> Tensor:
        """[L, D] shifted states of whole sequences."""
        if self.module is None or packed.vectors_LD is None:
            return hidden_LD
        return self.module(hidden_LD, packed, self.ends, [State()] * (len(packed.starts) - 1))[0]  # type: ignore[no-any-return]

    def extended(self, notes: dict[int, object], slots: Sequence[int], packed: Packed, hidden_LD: Tensor) -> Tensor:
        """[B, D] shifted states of the last tokens of sequences in a cache, whose states are its notes by slot."""
        last_B = torch.tensor(packed.starts[1:], device=hidden_LD.device) - 1
        if self.module is None:
            return hidden_LD[last_B]
        before = [state if isinstance(state := notes.get(slot), State) else State() for slot in slots]
        shifted_LD, after = self.module(hidden_LD, packed, self.ends, before)
        notes.update(zip(slots, after, strict=True))
        found: Tensor = shifted_LD[last_B]
        return found


class ControlledPolicy(LanguageModelPolicy):
    """A language model with controllers; with another head, one that has its prompts."""

    called = "model with controllers"
    compares = False

    def __init__(self, of: LanguageModelPolicy, settings: Controllers, steering: Steering) -> None:
        super().__init__(
            of.role,
            of.body,
            of.tokenizer,
            of.origin,
            head=of.head,
            value_head=of.value_head,
            lora=of.lora,
            projection=of.projection,
            latent=of.latent,
        )
        self.settings, self.steering = settings, steering
        assert isinstance(self.body, Decoder), "checked before"
        own = steering if self.head == "language" else None
        self.body.steers = Steers(module=own, ends=self._ends(), alone=settings.alone)
        self.body.vector_width = 1 + settings.rows * settings.count

    def _ends(self) -> frozenset[int]:
        """Tokens that end a sentence, whatever space follows."""
        ends = tuple(self.settings.ends)
        texts = (self.tokenizer.token_bytes(i).decode("utf-8", "ignore") for i in range(self.tokenizer.size))
        return frozenset(i for i, text in enumerate(texts) if text.strip() and text.rstrip().endswith(ends))

    def prompt(self, task: Task) -> Segment:
        """The prompt, with the task's strengths at its last token. Raises `UserError` for what are none."""
        start = super().prompt(task)
        if start.vectors is not None:
            raise UserError(f"task {task.key} has images, and the model in the role '{self.role}' takes none")
        if FIELD not in task.fields:
            return start
        vectors = np.zeros((len(start), 1 + self.settings.rows * self.settings.count), np.float32)
        if task.fields[FIELD] == PLANNED:
            vectors[-1, 0] = NETWORK
        else:
            vectors[-1, 0], vectors[-1, 1:] = ROWS, self._rows(task).ravel()
        return replace(start, vectors=vectors)

    def _rows(self, task: Task) -> FloatArray:
        """[R, K] strengths; the last row is repeated."""
        wanted = f"a list of 1 to {self.settings.rows} rows of {self.settings.count} numbers, or '{PLANNED}'"
        try:
            rows = np.array(task.fields[FIELD], np.float32)
        except (TypeError, ValueError):
            rows = np.zeros(0, np.float32)
        sound = rows.ndim == 2 and rows.shape[1] == self.settings.count and 1 <= len(rows) <= self.settings.rows
        if not sound or not np.isfinite(rows).all():
            raise UserError(f"task {task.key}: the field '{FIELD}' is {shown(task.fields[FIELD])}; it must be {wanted}")
        return np.concatenate([rows, np.repeat(rows[-1:], self.settings.rows - len(rows), 0)])

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
        """As of a language model; a batch with strengths trains the controllers alone, if that is set."""
        alone = packed.vectors_LD is not None and self.settings.alone and self.head == "language"
        with constant(self.body) if alone else _nothing():
            return super().evaluate(
                packed, positions_T, needs, temperature=temperature, others=others, foresight=foresight
            )

    def copied(self, role: str, model: Model) -> LanguageModelPolicy:
        """A copy, with the controllers."""
        plain = super().copied(role, model)
        settings = model.controllers or self.settings
        steering = Steering(settings, plain.body.width)
        if (settings.count, settings.hidden) == (self.settings.count, self.settings.hidden):
            steering.load_state_dict(self.steering.state_dict())
        return ControlledPolicy(plain, settings, steering.to(self.steering.matrices.dtype))

    def is_free(self, name: str) -> bool:
        """As of a language model; controllers are trained where there is a language head."""
        if name.startswith("steering."):
            return self.head == "language"
        return super().is_free(name)

    def _save_head(self, folder: Path) -> None:
        """Write the controllers."""
        super()._save_head(folder)
        write_tensors(folder / WEIGHTS, self.steering.state_dict())
        text = json.dumps(_READ.dump_python(self.settings, mode="json"), indent=2)
        (folder / SETTINGS).write_text(text + "\n", encoding="utf-8")


@contextmanager
def constant(body: nn.Module) -> Iterator[None]:
    """Inside, no parameter of a body gets a gradient from what is computed."""
    free = [parameter for parameter in body.parameters() if parameter.requires_grad]
    for parameter in free:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in free:
            parameter.requires_grad_(True)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def stored_settings(path: Path) -> Controllers | None:
    """The settings that a model was saved with; None for a model without controllers."""
    if not (path / SETTINGS).is_file():
        return None
    with guard(f"'{path / SETTINGS}' does not describe controllers"):
        return _READ.validate_python(read_json(file_in(path, SETTINGS)))


def open_controlled(role: str, model: Model, settings: Controllers, path: Path) -> ControlledPolicy:
    """A policy from a model's folder, with the controllers that were saved there, or new ones."""
    return with_controllers(open_language_model(role, model, path), settings, path / WEIGHTS)


def with_controllers(plain: LanguageModelPolicy, settings: Controllers, path: Path | None = None) -> ControlledPolicy:
    """A language model with controllers. Raises `UserError` for one that is not of this package, or sees images."""
    if not isinstance(plain.body, Decoder) or plain.body.vector_width is not None:
        raise UserError("controllers are for decoders that run natively and take text only; leave controllers out")
    steering = Steering(settings, plain.body.width)
    if path is not None and path.is_file():
        stored = stored_shapes(path)
        wanted = {name: tuple(tensor.shape) for name, tensor in steering.state_dict().items()}
        if stored != wanted:
            raise UserError(f"the controllers '{path}' have the tensors {shown(stored)}, and this model needs {wanted}")
        with open_weights(file_in(path.parent, path.name)) as file, guard(f"the controllers '{path}' are damaged"):
            steering.load_state_dict({name: file.get_tensor(name) for name in wanted})
    return ControlledPolicy(plain, settings, steering.to(plain.body.model.embed_tokens.weight.dtype))
