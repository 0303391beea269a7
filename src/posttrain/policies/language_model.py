"""A causal language model in a role: a body, a head, a tokenizer, and the folder it came from."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from posttrain.errors import UserError
from posttrain.errors.foreign import file_in, guard, shown
from posttrain.kernels.memory import give_back
from posttrain.models import LoRA, Model
from posttrain.policies import Body, Packed, Policy
from posttrain.policies._bodies import read_body
from posttrain.policies._cache import LARGE, free_kept
from posttrain.policies._prompts import prompt_of
from posttrain.policies._signals import CHUNK_LOGITS, MIN_CHUNK, Compared, token_signals
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import (
    Folder,
    Origin,
    check_context,
    open_weights,
    stored_shapes,
    write_folder,
    write_tensors,
)
from posttrain.policies.gguf.reading import open_model
from posttrain.policies.latent import LATENT, Latent, latent_signals, read_latent
from posttrain.policies.lora import (
    add_adapters,
    base_of,
    check_adapter,
    is_adapter,
    load_adapter,
    merge_adapters,
    merged_state,
    read_adapter,
    save_adapter,
    shared,
)
from posttrain.policies.projection import GIVEN, PROJECTION, Projection, read_projection
from posttrain.policies.tokenizer import Tokenizer
from posttrain.signals import (
    CERTAINTY,
    EMBEDDING,
    ENTROPY,
    LOGIT,
    LOGP,
    SCORE,
    SCORES,
    SELF_CERTAINTY,
    STATE,
    VALUE,
    Signal,
    roles_in,
)
from posttrain.types import IntArray, Segment, Task

Head = Literal["language", "value", "reward"]


class LanguageModelPolicy(Policy):
    """A language model, or the critic or reward model that has a language model's body."""

    GIVES: ClassVar[Mapping[str, frozenset[Signal]]] = {
        "language": frozenset({LOGP, ENTROPY, CERTAINTY, SELF_CERTAINTY, LOGIT}),
        "value": frozenset({VALUE, SCORE}),
        "reward": frozenset({SCORE, SCORES, STATE}),
    }
    compares: ClassVar[bool] = True

    lora: LoRA | None
    """The adapters that are trained, if adapters are."""
    head: Head
    value_head: nn.Linear | None
    """The layer of a ``value`` or ``reward`` head."""

    def __init__(
        self,
        role: str,
        body: Body,
        tokenizer: Tokenizer,
        origin: Origin,
        *,
        head: Head = "language",
        value_head: nn.Linear | None = None,
        lora: LoRA | None = None,
        projection: Projection | None = None,
        latent: Latent | None = None,
    ) -> None:
        super().__init__()
        assert (value_head is None) == (head == "language"), "numbers come from a head of their own"
        self.role, self.body, self.tokenizer, self.version = role, body, tokenizer, 0
        self.origin, self.head, self.value_head, self.lora = origin, head, value_head, lora
        self.projection, self.latent = projection, latent
        self.eval()

    @property
    def gives(self) -> frozenset[Signal]:
        """Those of its head, and of its projection."""
        return super().gives | (GIVEN if self.projection is not None else frozenset())

    @classmethod
    def given_by(cls, model: Model) -> frozenset[Signal]:
        """Those of the head, and of a projection."""
        return super().given_by(model) | (GIVEN if model.projection is not None else frozenset())

    def prompt(self, task: Task) -> Segment:
        """The prompt's token ids, with the patches of its images. Raises `UserError` for images that it cannot see."""
        return prompt_of(self, task)

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
        """Signals [T] of the tokens at `positions_T`; only a reward head gives one of the first token of a sequence."""
        self.check_needs(needs, others or {})
        assert temperature > 0, "greedy choices have no log-probability"
        if self.latent is not None:
            return latent_signals(self.latent, self.body, self.tokenizer.end_token_ids, packed, positions_T, needs)
        hidden_LD = self.body.hidden(self._foreseen(packed, positions_T, foresight) if foresight else packed)
        if self.value_head is not None:
            return self._numbers(self.value_head, hidden_LD, packed, positions_T, needs)
        before_T = packed.before(positions_T)
        compared = {role: self._comparable(role, (others or {})[role]) for role in sorted(roles_in(needs))}
        with torch.no_grad():
            hidden = {role: other.body.hidden(packed).index_select(0, before_T) for role, other in compared.items()}

        def signals_of(
            body: Body, hidden_TD: Tensor, needs: frozenset[Signal], *others: Compared
        ) -> dict[Signal, Tensor]:
            return token_signals(
                body.logits,
                hidden_TD,
                packed.token_ids_L.index_select(0, positions_T),
                vocabulary_size=body.vocabulary_size,
                temperature=temperature,
                needs=needs,
                others=others,
                allowed=packed.allowed,
            )

        divergences = {role: frozenset(s for s in needs if s.compares and s.of == role) for role in compared}
        signals = signals_of(
            self.body,
            hidden_LD.index_select(0, before_T),
            needs,
            *(
                Compared(logits_of=compared[role].body.logits, hidden_TD=hidden[role], needs=divergent)
                for role, divergent in divergences.items()
                if divergent
            ),
        )
        for role, other in compared.items():
            own = {s.local: s for s in needs if s.of == role and not s.compares}
            if own:
                with torch.no_grad():
                    found = signals_of(other.body, hidden[role], frozenset(own))
                signals |= {signal: found[itself] for itself, signal in own.items()}
        if self.projection is not None:
            signals |= self._projected(self.projection, hidden_LD, before_T, positions_T, needs)
        return signals

    def bound_attention(self, texts: Sequence[IntArray], tau: float) -> None:
        """Scale the heads above it, of a native decoder without norms of queries and keys."""
        from posttrain.policies.attention_logits import bound

        bound(self, texts, tau)

    def _projected(
        self, head: Projection, hidden_LD: Tensor, before_T: Tensor, positions_T: Tensor, needs: frozenset[Signal]
    ) -> dict[Signal, Tensor]:
        """The needed outputs of a projection."""
        signals: dict[Signal, Tensor] = {}
        if VALUE in needs:
            signals[VALUE] = head(hidden_LD.index_select(0, before_T))[1]
        if needs & {EMBEDDING, SCORE}:
            signals[EMBEDDING], signals[SCORE] = head(hidden_LD.index_select(0, positions_T))
        return signals

    @torch.no_grad()
    def _foreseen(self, packed: Packed, positions_T: Tensor, share: float) -> Packed:
        """The same tokens, with the most likely ones mixed into the input embeddings at `positions_T`."""
        hidden_TD = self.body.hidden(packed).index_select(0, packed.before(positions_T))
        parts = torch.split(hidden_TD, max(MIN_CHUNK, CHUNK_LOGITS // self.body.vocabulary_size))
        guessed_L = packed.token_ids_L.clone()
        guessed_L[positions_T] = torch.cat([self.body.logits(part).argmax(-1) for part in parts])
        return replace(packed, guessed_L=guessed_L, foresight=share)

    def _numbers(
        self, head: nn.Linear, hidden_LD: Tensor, packed: Packed, positions_T: Tensor, needs: frozenset[Signal]
    ) -> dict[Signal, Tensor]:
        """The outputs of a value head or a reward head."""
        if self.head == "reward":
            hidden_TD = hidden_LD.index_select(0, positions_T)
            found = {SCORE: _values(head, hidden_TD)}
            found |= {STATE: hidden_TD} if STATE in needs else {}
            return found | ({SCORES: _all_values(head, hidden_TD)} if SCORES in needs else {})
        signals = {}
        if VALUE in needs or not needs:
            signals[VALUE] = _values(head, hidden_LD.index_select(0, packed.before(positions_T)))
        if SCORE in needs:
            signals[SCORE] = _values(head, hidden_LD.index_select(0, self._last_states(packed, positions_T)))
        return signals

    def _comparable(self, role: str, other: Policy) -> "LanguageModelPolicy":
        """Another model over the same tokens. Raises `UserError` for one that has others."""
        if not isinstance(other, LanguageModelPolicy) or other.head != "language":
            raise UserError(f"the model in the role '{role}' gives no probabilities of text to be compared with")
        sizes = [model.body.vocabulary_size for model in (self, other)]
        if sizes[0] != sizes[1]:
            raise UserError(
                f"a divergence over the whole vocabulary is between models with the same tokens; '{self.role}' has "
                f"{sizes[0]} and '{role}' {sizes[1]}"
            )
        return other

    def _last_states(self, packed: Packed, positions_T: Tensor) -> Tensor:
        """[T] token after which a critic's value of each token's state is read.

        The state after an end token is one that no critic learns, because nothing is written there; the one before it
        is the last.
        """
        token_T = packed.token_ids_L.index_select(0, positions_T)
        ends = torch.tensor(sorted(self.tokenizer.end_token_ids), dtype=torch.int64, device=token_T.device)
        ended_T = torch.isin(token_T, ends)
        return positions_T.masked_scatter(ended_T, packed.before(positions_T[ended_T]))

    @property
    def shares_prompts(self) -> bool:
        """As its body."""
        return self.body.shares_prompts

    @property
    def summed_in_parts(self) -> frozenset[str]:
        """Those of the body."""
        own = {id(parameter) for parameter in self.body.summed_in_parts}
        return frozenset(name for name, parameter in self.named_parameters() if id(parameter) in own)

    @property
    def kept_bytes(self) -> int | None:
        """As its body."""
        return self.body.kept_bytes

    def give_back_memory(self) -> None:
        """The memory of closed caches, and what the C library keeps, where the weights are `LARGE`."""
        if sum(parameter.nbytes for parameter in self.parameters()) >= LARGE:
            free_kept()
            give_back()

    def save(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder; adapters are merged into it, and also kept apart in ``adapter/``."""
        if isinstance(self.body, Decoder):
            state = merged_state(self.body)
            if "lm_head.weight" in self.origin.stored and self.body.shape.tied:
                state["lm_head.weight"] = state["model.embed_tokens.weight"].clone()
            write_folder(folder, state, self.origin)
        else:
            from posttrain.policies.transformers_body import TransformersBody

            assert isinstance(self.body, TransformersBody), "there are two bodies"
            self.body.save(folder, merged_state(self.body.causal), self.origin)
        self._save_head(folder)
        if self.lora is not None:
            save_adapter(folder / "adapter", root_of(self.body), self.lora, self.origin.source)

    def save_adapters(self, folder: Path) -> None:
        """Write a ``peft`` folder: the adapters, the path of their base, the tokenizer, and a head of its own."""
        assert self.lora is not None, "there are adapters"
        save_adapter(folder, root_of(self.body), self.lora, self.origin.source)
        for name, content in self.origin.carried.items():
            (folder / name).write_bytes(content)
        self._save_head(folder)

    def _save_head(self, folder: Path) -> None:
        """Write the layer of a value or reward head, and a projection."""
        if self.value_head is not None:
            write_tensors(folder / head_file(self.head), self.value_head.state_dict())
        if self.projection is not None:
            write_tensors(folder / PROJECTION, self.projection.state_dict())
        if self.latent is not None:
            write_tensors(folder / LATENT, self.latent.state_dict())

    def copied(self, role: str, model: Model) -> "LanguageModelPolicy":
        """A copy, its adapters merged. A value head from a reward head, or the other way, begins as a copy of it."""
        body = shared(self.body, self.role, model) if model.shared else copy.deepcopy(self.body)
        body.context = check_context(model.context, body.context)
        merge_adapters(root_of(body))
        body.to(getattr(torch, model.dtype))
        if model.lora is not None:
            add_adapters(root_of(body), model.lora)
        value_head = None
        if model.head != "language":
            head = self.value_head
            same = head is not None and head.out_features == model.outputs
            value_head = copy.deepcopy(head) if same else new_value_head(body.width, model.outputs)
        projection = None
        if model.projection is not None:
            kept = self.projection is not None and self.projection.width == model.projection
            projection = copy.deepcopy(self.projection) if kept else Projection(body.width, model.projection)
        latent = None
        if model.latent is not None:
            kept = self.latent is not None and self.latent.size == model.latent
            latent = copy.deepcopy(self.latent) if kept else Latent(body.width, model.latent)
        return LanguageModelPolicy(
            role,
            body,
            self.tokenizer,
            self.origin,
            head=model.head,
            value_head=value_head,
            lora=model.lora,
            projection=projection,
            latent=latent,
        )

    def is_free(self, name: str) -> bool:
        """With adapters, only they and the heads are trained; with a latent, it alone."""
        if self.latent is not None:
            return name.startswith("latent.")
        return self.lora is None or "lora_" in name or name.startswith(("value_head.", "projection."))


def root_of(body: Body) -> nn.Module:
    """The module whose parameters have the names of the model's files."""
    if isinstance(body, Decoder):
        return body
    return body.get_submodule("causal")


def open_language_model(role: str, model: Model, path: Path) -> LanguageModelPolicy:
    """A policy from a model folder, or the folder of an adapter."""
    dtype = getattr(torch, model.dtype)
    if is_adapter(path):
        body, origin = _read_adapted(path, model, dtype)
    else:
        body, origin = read_body(open_model(path), dtype, model.context)
        if model.lora is not None:
            add_adapters(root_of(body), model.lora)
    tokenizer = _read_tokenizer(path, origin)
    if tokenizer.size > body.vocabulary_size:
        raise UserError(
            f"the tokenizer of '{path}' has {tokenizer.size} tokens, but the model has only {body.vocabulary_size}; "
            "they do not belong together"
        )
    value_head = None
    if model.head != "language":
        found = read_value_head(path / head_file(model.head), body.width, model.outputs)
        value_head = found or new_value_head(body.width, model.outputs)
    projection = None
    if model.projection is not None:
        projection = read_projection(path / PROJECTION, body.width, model.projection)
    latent = None
    if model.latent is not None:
        latent = read_latent(path / LATENT, body.width, model.latent)
    return LanguageModelPolicy(
        role,
        body,
        tokenizer,
        origin,
        head=model.head,
        value_head=value_head,
        lora=model.lora,
        projection=projection,
        latent=latent,
    )


def _read_tokenizer(path: Path, origin: Origin) -> Tokenizer:
    """The tokenizer of a model folder, of an adapter's folder that has its own, or of a model that is one file."""
    source = Path(origin.source)
    if source.is_file():
        with TemporaryDirectory() as made:
            for name, content in {**origin.carried, "config.json": origin.config}.items():
                (Path(made) / name).write_bytes(content)
            return Tokenizer.load(Path(made), where=str(source))
    own_tokenizer = (path / "tokenizer.json").is_file()
    return Tokenizer.load(path if own_tokenizer else source, model=source)


def _read_adapted(path: Path, model: Model, dtype: torch.dtype) -> tuple[Body, Origin]:
    """The model that an adapter is made for with the adapter: merged, or trainable if the recipe sets it."""
    stored = read_adapter(path)
    body, origin = read_body(open_model(base_of(path, model)), dtype, model.context)
    check_adapter(path, root_of(body), stored)
    add_adapters(root_of(body), stored)
    load_adapter(path, root_of(body))
    lora = model.lora
    if lora is None:
        merge_adapters(root_of(body))
    elif (lora.rank, lora.alpha, sorted(lora.targets)) != (stored.rank, stored.alpha, sorted(stored.targets)):
        raise UserError(
            f"the adapter '{path}' has rank {stored.rank}, alpha {stored.alpha:g} and targets "
            f"{', '.join(stored.targets)}; the recipe's lora differs: give the same to train it on, or leave it out"
        )
    return body, replace(origin, carried={**origin.carried, **Folder(path).carried})


def new_value_head(width: int, outputs: int = 1) -> nn.Linear:
    """A head whose outputs are 0 for every state."""
    head = nn.Linear(width, outputs, dtype=torch.float32)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def head_file(head: Head) -> str:
    """Name of the file of a value or reward head in a model's folder."""
    return f"{head}_head.safetensors"


def read_value_head(path: Path, width: int, outputs: int = 1) -> nn.Linear | None:
    """The head that was saved with a model, if any."""
    if not path.is_file():
        return None
    head, what = (
        new_value_head(width, outputs),
        f"the {path.stem.replace('_', ' ')} '{path}' is damaged or of another model",
    )
    stored, wanted = stored_shapes(path), {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    if stored != wanted:
        raise UserError(f"{what}: its tensors are {shown(stored)}, and this model needs {wanted}")
    with open_weights(file_in(path.parent, path.name)) as file, guard(what):
        head.load_state_dict({name: file.get_tensor(name) for name in wanted})
    return head


def _values(head: nn.Linear, hidden_TD: Tensor) -> Tensor:
    """[T] first output for hidden states; a sum over each row, so that no other row has any effect on it."""
    weight, bias = head.weight[0], head.bias[0]
    return (hidden_TD.to(weight.dtype) * weight).sum(-1) + bias


def _all_values(head: nn.Linear, hidden_TD: Tensor) -> Tensor:
    """[T, O] outputs for hidden states; the first is that of `_values`, and no other row has any effect on a row."""
    hidden_TD = hidden_TD.to(head.weight.dtype)
    weights = zip(head.weight, head.bias, strict=True)
    return torch.stack([(hidden_TD * weight).sum(-1) + bias for weight, bias in weights], -1)
