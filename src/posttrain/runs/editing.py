"""Edits outside a run: labelled texts, and what an edit and its controls do to a model's likelihoods and samples.

The samples are scored without the model: by a naive Bayes classifier of words that is fitted to the same texts as the
edit's probe. Texts that neither has seen give the likelihoods and the prompts.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import ConfigDict, Field

from posttrain.components.edits import Edit, Plan
from posttrain.datasets.sources import open_source
from posttrain.errors import UserError
from posttrain.runs.sweeps import Results

if TYPE_CHECKING:
    import torch

    from posttrain.policies.language_model import LanguageModelPolicy

MOST_TEXTS: Final = 20_000
TEST: Final = 5
"""One in this many texts is left to measure with."""
SAMPLED: Final = 32
"""Tokens of a sample."""
MOST_SAMPLES: Final = 200
_WORDS: Final = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A text, and whether it shows the behaviour to avoid."""

    text: str
    away: bool


def read_texts(path: str) -> list[Labelled]:
    """Rows with the columns ``text`` and ``label``, 1 (or true) to avoid. Raises `UserError` for others."""
    found: list[Labelled] = []
    for row in open_source(path, None, None).rows:
        text, label = row.values.get("text"), row.values.get("label")
        if not isinstance(text, str) or not text.strip() or label not in (0, 1):
            raise UserError(
                f"{row.place} has text {text!r:.60} and label {label!r:.20}; text is not empty, and label is "
                "1 for the behaviour to avoid or 0"
            )
        if len(found) == MOST_TEXTS:
            raise UserError(f"{path} has more than {MOST_TEXTS:,} texts; a probe needs fewer")
        found.append(Labelled(text=text, away=bool(label)))
    return found


@dataclass(frozen=True, kw_only=True)
class Words:
    """Naive Bayes over words with add-one smoothing, and equal priors."""

    log_ratio: dict[str, float]
    """By word, log p(word | away) - log p(word | not)."""

    @classmethod
    def fitted(cls, texts: Sequence[Labelled]) -> "Words":
        """From texts of both labels."""
        away, other = (
            Counter(w for t in texts if t.away is label for w in words_of(t.text)) for label in (True, False)
        )
        seen = away.keys() | other.keys()
        log_scale = math.log((other.total() + len(seen)) / (away.total() + len(seen))) if seen else 0.0
        ratio = {word: math.log((away[word] + 1) / (other[word] + 1)) + log_scale for word in seen}
        return cls(log_ratio=ratio)

    def away(self, text: str) -> bool:
        """Whether its words are likelier in texts that show the behaviour; a text of other words does not."""
        return sum(self.log_ratio.get(word, 0.0) for word in words_of(text)) > 0.0


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _WORDS.findall(text.lower())


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What an edited model does."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    edit: str
    """``edit``, or the name of a control."""
    strength: float
    away: Annotated[float, Field(ge=0.0, le=1.0)]
    """Share of samples after the starts of unseen texts that the classifier of words finds to show the behaviour."""
    perplexity: Annotated[float, Field(ge=0.0)]
    """Per token, of unseen texts without the behaviour."""
    perplexity_away: Annotated[float, Field(ge=0.0)]
    """Of unseen texts with it."""


class Trial:
    """A model to edit, and labelled texts: most of them for the probe and the classifier, one in five to measure."""

    def __init__(self, policy: "LanguageModelPolicy", texts: Sequence[Labelled], *, seed: int = 0) -> None:
        """Raises `UserError` for too few texts to measure with."""
        self.policy, self.seed = policy, seed
        self.fitted = [text for i, text in enumerate(texts) if i % TEST]
        self.test = [text for i, text in enumerate(texts) if not i % TEST]
        if len({text.away for text in self.fitted}) < 2 or len({text.away for text in self.test}) < 2:
            raise UserError(
                f"there are {len(texts)} texts, {sum(text.away for text in texts)} of them with label 1; both labels "
                "are needed among those that the probe is fitted to and among the one in five that measure it"
            )
        self.words = Words.fitted(self.fitted)

    def plan(self, edit: Edit) -> Plan:
        """The plan of an edit of this model."""
        import torch

        from posttrain.policies.editing import matrices_of

        label_N = torch.tensor([int(text.away) for text in self.fitted])
        return edit.plan(self._states, label_N, matrices_of(self.policy))

    @cached_property
    def word_accuracy(self) -> float:
        """Share of the unseen texts that the classifier of words gets right."""
        return sum(self.words.away(text.text) == text.away for text in self.test) / len(self.test)

    @cached_property
    def _states(self) -> "torch.Tensor":
        from posttrain.policies.editing import mean_states

        return mean_states(self.policy, [self._ids(text.text) for text in self.fitted])

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text, as many as the model takes."""
        return [int(i) for i in self.policy.tokenizer.encode(text)][: self.policy.context]

    def effect(self, name: str, edit: Edit, strength: float) -> Effect:
        """Edit, measure, undo."""
        from posttrain.policies.editing import edited

        with edited(self.policy, self.plan(edit.at(strength))):
            return self._measured(name, strength)

    def steered(self, step_D: "torch.Tensor", strength: float) -> Effect:
        """The effect of steering in place of an edit: strength times a step is taken off the output of every layer."""
        from posttrain.policies.layers import layers_of, replaced

        def change(state: "torch.Tensor") -> "torch.Tensor":
            return state - strength * step_D.to(state)

        with replaced(self.policy.body, dict.fromkeys(range(len(layers_of(self.policy.body))), change)):
            return self._measured("steering", strength)

    def _measured(self, name: str, strength: float) -> Effect:
        """The model as it is now."""
        return Effect(
            edit=name,
            strength=strength,
            away=self._sampled(),
            perplexity=self._perplexity(away=False),
            perplexity_away=self._perplexity(away=True),
        )

    def _perplexity(self, *, away: bool) -> float:
        import torch

        from posttrain.policies import Packed
        from posttrain.signals import LOGP

        total, count = 0.0, 0
        for text in self.test:
            ids = self._ids(text.text)
            if text.away is away and len(ids) > 1:
                packed = Packed(token_ids_L=torch.tensor(ids), starts=(0, len(ids)))
                with torch.no_grad():
                    logp_T = self.policy.evaluate(packed, torch.arange(1, len(ids)))[LOGP]
                total, count = total - float(logp_T.sum()), count + len(logp_T)
        return math.exp(min(total / max(count, 1), 700.0))

    def _sampled(self) -> float:
        """The share of samples that show the behaviour; the same draws for every edit."""
        import numpy as np

        from posttrain.engines import Sampling, wait_for
        from posttrain.engines.native import Native

        server = Native().serve(self.policy, self.seed)
        sampling = Sampling(max_tokens=SAMPLED)

        async def run() -> list[str]:
            async def one(i: int, text: Labelled) -> str:
                ids = self._ids(text.text)
                start = np.array(ids[: max(1, min(len(ids), self.policy.context - SAMPLED) // 3)], np.int64)
                [written] = await server.bind("edit", str(i)).sample(start, 1, sampling)
                return written.text

            return list(await asyncio.gather(*(one(i, text) for i, text in enumerate(self.test[:MOST_SAMPLES]))))

        written = wait_for(run())
        return sum(map(self.words.away, written)) / len(written)


def effects_in(path: Path | None, settings: Mapping[str, Any]) -> Results[Effect]:
    """The effects of a sweep with these settings in a file. Raises `UserError` where it holds others."""
    return Results(Effect, lambda effect: f"{effect.edit} {effect.strength:g}", path, settings)


def sweep(
    trial: Trial,
    edit: Edit,
    strengths: Sequence[float],
    on_effect: Callable[[Effect], None] = lambda effect: None,
    *,
    kept: Results[Effect] | None = None,
) -> list[Effect]:
    """The effect of an edit and of its controls of equal size at each strength; at 0 there is nothing to control.

    What is `kept` is taken.
    """
    found: list[Effect] = []
    kept = kept or effects_in(None, {})
    for strength in strengths:
        for name, arm in {"edit": edit, **(edit.controls if strength else {})}.items():
            known = kept.get(f"{name} {strength:g}")
            if known is None:
                known = trial.effect(name, arm, strength)
                kept.put(known)
            found.append(known)
            on_effect(found[-1])
    return found


def folder_named(model: str) -> Path:
    """The folder of a model with files that can be edited. Raises `UserError` for an adapter or a GGUF file."""
    from posttrain.models import Model
    from posttrain.policies.loading import folder_of
    from posttrain.policies.lora import is_adapter
    from posttrain.runs.launch import model_source

    path = folder_of("policy", Model(source=model_source(model)))
    if path.is_file() or is_adapter(path):
        raise UserError(
            f"'{model}' is an adapter or a GGUF file, and an edit changes the rows of a model's own files; make a "
            f"folder of it first: posttrain export {model}"
        )
    return path
