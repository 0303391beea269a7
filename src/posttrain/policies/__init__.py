"""Policies: the models that are trained and sampled.

A `Policy` is a model in a role: weights, tokenizer, and the one forward pass that sampling and learning share. The
bodies that it can have (`Body`) are the native decoder and any causal model of ``transformers``; both work on packed
tokens, so there is no padding anywhere above them.

    bodies     native decoder (Llama-, Qwen2-, Qwen3-shaped) | transformers
    policy     body + head (language, value or reward) + tokenizer + version

A policy that is no language model, a flow for example, has neither body nor text: it gives the same signals of its own
kind of tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor, nn

from posttrain.errors import UserError
from posttrain.policies._memory import room_beside, state_bytes
from posttrain.signals import LOGP, Signal
from posttrain.types import Array, IntArray, Segment, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.kernels import Drawing
    from posttrain.models import Model
    from posttrain.policies.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Sequences laid end to end. L tokens in all, N sequences."""

    token_ids_L: Tensor
    """int64 [L]."""
    starts: tuple[int, ...]
    """N + 1 offsets: sequence i is ``token_ids_L[starts[i]:starts[i + 1]]``."""
    vectors_LD: Tensor | None = None
    """float32 [L, D] a vector for each token, zeros where it has none; None for text (`Segment.vectors`)."""
    after: tuple[int, ...] | None = None
    """N: the sequence that each one continues, -1 for none: a prompt that several share is there once. What is
    continued continues nothing itself. None where no sequence does."""
    allowed: tuple[Tensor, Tensor] | None = None
    """int64 [M] ids of allowed tokens, and [M] which of the tokens whose signals are asked for each is for, ascending.
    A token without any may be every one; None where all may be."""
    guessed_L: Tensor | None = None
    """int64 [L] tokens whose input embeddings are mixed with those of the others; None for none."""
    foresight: float = 0.0
    """Their share, in [0, 1]."""

    @property
    def lengths(self) -> list[int]:
        """N lengths in tokens."""
        return [end - begin for begin, end in zip(self.starts, self.starts[1:], strict=False)]

    @property
    def past(self) -> list[int]:
        """N numbers of tokens that come before each sequence."""
        lengths = self.lengths
        return [0 if before < 0 else lengths[before] for before in self.after or [-1] * len(lengths)]

    def before(self, positions_T: Tensor) -> Tensor:
        """[T] index of the token before each of those at `positions_T`, which must exist."""
        before_L = torch.arange(-1, len(self.token_ids_L) - 1)
        begin_N = torch.tensor(self.starts[:-1])
        last_N = torch.tensor([*self.starts[1:], 0]) - 1  # and -1 at its end, for those that continue nothing
        after_N = torch.tensor(self.after or [-1] * len(begin_N))
        some_N = torch.tensor(self.lengths) > 0
        before_L[begin_N[some_N]] = last_N[after_N[some_N]]
        before_T = before_L.to(positions_T.device).index_select(0, positions_T)
        assert len(before_T) == 0 or before_T.min() >= 0, "the first token of a sequence has nothing before it"
        return before_T

    def alone(self) -> "tuple[Packed, Tensor]":
        """The same with no sequence continuing another, and where in it each token is, int64 [L]."""
        parts = [torch.arange(begin, end) for begin, end in zip(self.starts, self.starts[1:], strict=False)]
        before = [torch.arange(0) if j < 0 else parts[j] for j in self.after or [-1] * len(parts)]
        rows = torch.cat([row for pair in zip(before, parts, strict=True) for row in pair])
        ends = list(accumulate(len(a) + len(b) for a, b in zip(before, parts, strict=True)))
        places = [torch.arange(end - len(part), end) for end, part in zip(ends, parts, strict=True)]
        rows = rows.to(self.token_ids_L.device)
        vectors_LD = None if self.vectors_LD is None else self.vectors_LD[rows]
        packed = Packed(
            token_ids_L=self.token_ids_L[rows],
            starts=(0, *ends),
            vectors_LD=vectors_LD,
            guessed_L=None if self.guessed_L is None else self.guessed_L[rows],
            foresight=self.foresight,
            allowed=self.allowed,
        )
        return packed, torch.cat(places).to(rows.device)


class Cache(Protocol):
    """Keys and values of the sequences in progress, one per slot."""

    lengths: IntArray
    """Tokens held by each slot; 0 for a free one."""

    def close(self) -> None:
        """Free the cache after its last use; all of its values were finite."""
        ...

    def release(self, slot: int) -> None:
        """Free a slot for another sequence."""
        ...

    def copy(self, source: int, targets: Sequence[int]) -> None:
        """Give every target slot what the source slot holds: a prompt computed once for a whole group."""
        ...

    def take_out(self, slot: int, tokens: int) -> list[Array] | None:
        """Copies of the keys and values of the first tokens of a slot, bfloat16 as the int16 of its bits; None for a
        model that has more than keys and values.
        """
        ...

    def put_in(self, slot: int, stored: Sequence[Array]) -> None:
        """Give a free slot what `take_out` gave."""
        ...


class Body(nn.Module):
    """A causal transformer that returns a hidden state for each token.

    Contract: `hidden` and `extend` are the same function of (weights, sequence) up to rounding (1e-5 in float32 on the
    log-probabilities), and neither depends on what else is packed or in the cache with a sequence.
    """

    recomputes_layers: bool | None = None
    """Whether the backward pass computes the layers again, whatever a forward pass keeps; None where it cannot."""

    width: int
    vocabulary_size: int
    context: int
    """Longest sequence in tokens."""
    vector_width: int | None = None
    """Numbers in the vector that a token may have (`Segment.vectors`); None for a model that takes text only."""

    @property
    def shares_prompts(self) -> bool:
        """Whether a sequence that continues another (`Packed.after`) reuses the computation of its prefix."""
        return False

    @property
    def prefix_stamp(self) -> object | None:
        """What the keys and values of a token depend on beside the tokens up to it, to compare; None where they may not
        be kept for other sequences: where they are not the same to the bit however the tokens are divided into passes,
        or something reads or changes states on the way.
        """
        return None

    @property
    def decodes_alike(self) -> bool:
        """Whether keys and values are the same to the bit when tokens are decoded one by one."""
        return False

    @property
    def kept_bytes(self) -> int | None:
        """Approximate bytes per token that a forward pass keeps for the backward pass; None if unknown."""
        return None

    @property
    def summed_in_parts(self) -> tuple[nn.Parameter, ...]:
        """Parameters to whose ``grad`` one backward pass adds several times: those of logits that come in chunks."""
        return ()

    @property
    def decoding_bytes(self) -> int:
        """Bytes of the copy of the weights that decoding makes; 0 where it makes none."""
        return 0

    @property
    def cached_tokens(self) -> int | None:
        """Tokens that sequences in progress should have in a cache at most; None for any number."""
        return None

    def hidden(self, packed: Packed) -> Tensor:
        """[L, D] final hidden states (after the last norm); differentiable."""
        raise NotImplementedError

    @property
    def shows_attention(self) -> bool:
        """Whether it has `attention`."""
        return False

    def attention(self, packed: Packed, share: float) -> Tensor:
        """[L] how much the last token of one sequence attends to each of its tokens, of sum 1: the mean over all heads
        of the first `share` of the layers, at least one. No gradient.
        """
        raise NotImplementedError

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """[T, V] next-token logits of hidden states."""
        raise NotImplementedError

    def next_logits(self, cache: Cache, hidden_BD: Tensor) -> Tensor:
        """[B, V] logits of last hidden states, to draw from: `logits` up to rounding."""
        return self.logits(hidden_BD)

    def new_cache(self, slots: int, capacity: int) -> Cache:
        """An empty cache for `slots` sequences of up to `capacity` tokens each."""
        raise NotImplementedError

    def extend(self, cache: Cache, slots: Sequence[int], packed: Packed) -> Tensor:
        """[B, D] hidden state of the last token of each sequence, after appending packed sequence i to slot
        ``slots[i]``. One call serves prompts (many tokens) and decoding (one token each), whose ids may be on the
        host wherever the weights are.
        """
        raise NotImplementedError

    def write(
        self, cache: Cache, slots: Sequence[int], token_ids_B: Tensor, drawing: "Drawing", steps: int
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Decode N tokens of each sequence: `extend` by ids of the host, `next_logits`, a draw from all tokens, and
        the same with what was drawn. N is `steps`, or what the context leaves to all if that is less. Gives tokens,
        int64 [B, N], their log-probabilities and the entropies, float64 [B, N], to the bits that single steps give;
        None, with nothing done, where a body only takes those. The last token drawn is not appended.
        """
        return None


class Policy(nn.Module):
    """A model in a role."""

    GIVES: ClassVar[Mapping[str, frozenset[Signal]]]
    """By head, the signals that models of this kind give of themselves."""

    called: ClassVar[str] = "model"
    """Its kind, in a word, for messages."""
    compares: ClassVar[bool] = False
    """Whether its language head has divergences from other models of its kind."""
    writes: ClassVar[bool] = True
    """Whether it can be sampled."""

    role: str
    head: str
    body: Body
    tokenizer: "Tokenizer"
    version: int
    """Number of updates that the weights have seen in this run."""

    @property
    def gives(self) -> frozenset[Signal]:
        """The signals that it computes of itself."""
        return self.GIVES[self.head]

    @classmethod
    def given_by(cls, model: "Model") -> frozenset[Signal]:
        """The signals that a model of this kind gives of itself with these settings."""
        return cls.GIVES.get(model.head, frozenset())

    def check_needs(self, needs: frozenset[Signal], others: "Mapping[str, Policy]") -> None:
        """Raise `UserError` for signals that it cannot compute, of itself or with the others."""

        def given(need: Signal) -> bool:
            if not need.of:
                return need in self.gives
            possible = self.compares and LOGP in self.gives and need.of in others
            return possible and (need.compares or need.local in others[need.of].gives)

        if not all(map(given, needs)):
            known, wanted = sorted(map(str, self.gives)), sorted(str(need) for need in needs if not given(need))
            raise UserError(
                f"the {self.called} in the role '{self.role}' has a {self.head} head: it gives {' and '.join(known)}, "
                f"not {', '.join(wanted)}"
            )

    def at(self, progress: float) -> None:
        """Set what is scheduled in the model itself to this progress of a stage, in [0, 1]; most have nothing."""

    def prompt(self, task: Task) -> Segment:
        """A task's prompt as this model takes it. Raises `UserError` for images that it cannot see."""
        raise NotImplementedError

    def prompt_length(self, task: Task) -> int:
        """Tokens of the prompt."""
        return len(self.prompt(task))

    @property
    def context(self) -> int:
        """Longest sequence in tokens."""
        return self.body.context

    @property
    def shares_prompts(self) -> bool:
        """See `Body.shares_prompts`."""
        return False

    def recompute_layers(self, wanted: bool) -> None:
        """Compute layers again in the backward pass, or do not. Raises `UserError` for a model that cannot."""
        bodies = [module for module in self.modules() if isinstance(module, Body)]
        if wanted and (not bodies or any(body.recomputes_layers is None for body in bodies)):
            raise UserError(f"learner.recompute is for decoders that run natively, not for the {self.called}")
        for body in bodies:
            body.recomputes_layers = None if body.recomputes_layers is None else wanted

    @property
    def kept_bytes(self) -> int | None:
        """See `Body.kept_bytes`."""
        return None

    @property
    def summed_in_parts(self) -> frozenset[str]:
        """Names of the parameters of `Body.summed_in_parts`."""
        return frozenset()

    @property
    def room_bytes(self) -> int:
        """Bytes that a forward pass on a CPU may keep for the backward pass, beside what training the model takes."""
        return room_beside(state_bytes(self))

    def give_back_memory(self) -> None:
        """Give what is only kept to be faster back to the system, where that is much beside the model; between phases
        that need it for something else: sampling, learning.
        """

    def bound_attention(self, texts: Sequence[IntArray], tau: float) -> None:
        """Scale weights so that no attention logit of the texts is above `tau`. Raises `UserError` if it has none."""
        raise UserError(
            f"the {self.called} of the role '{self.role}' has no attention logits to bound; leave the hook out"
        )

    def evaluate(
        self,
        packed: Packed,
        positions_T: Tensor,
        needs: frozenset[Signal] = frozenset(),
        *,
        temperature: float = 1.0,
        others: "Mapping[str, Policy] | None" = None,
        foresight: float = 0.0,
    ) -> Mapping[Signal, Tensor]:
        """Signals of the tokens at `positions_T` (indices into L), each [T] and differentiable.

        With `foresight`, the input embeddings of the tokens at the positions are mixed with those of the model's own
        choices, of which they have that share.

        A language head always gives the log-probability (of the token at the position, given those before it, at the
        temperature) and, if needed, the entropy of the distribution that it was drawn from, in nats, the token's logit
        over the temperature, and of each of the `others`, by role, divergences between it and this model, over the
        whole vocabulary, and its own signals (``Signal("logp", of=role)``); the others get no gradient. A value
        head gives the value of the state before the token; a reward head the score of the sequence up to and including
        it. With a projection, a language head gives values too, as the score the value of the state after any token,
        and the embedding of that state ([T, E]). A value head's score is its value of the state after the token, or
        before it where it is an end token. No tensor of size L x V is ever made: logits exist for chunks of T only.

        Raises `UserError` for what it cannot give (`gives`).
        """
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder: config, safetensors, tokenizer, chat template, generation config."""
        raise NotImplementedError

    def save_adapters(self, folder: Path) -> None:
        """Write the adapters of a model alone, with the tokenizer and a reference to their base."""
        raise NotImplementedError

    def copied(self, role: str, model: "Model") -> "Policy":
        """A copy of the current weights for another role, by the settings of its `Model`."""
        raise NotImplementedError

    def is_free(self, name: str) -> bool:
        """Whether a parameter changes when the model is trained."""
        return True

    def demonstration(self, task: Task, text: str, *key: int) -> Trajectory | None:
        """A demonstration in this model's own kind of tokens, with draws that are a function of the key; None where it
        is text. Raises `UserError` for what the model cannot imitate.
        """
        return None
