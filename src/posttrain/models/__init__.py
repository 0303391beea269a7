"""The model of a role: source, adapter, head, and endpoint."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.shapes import Shape


@frozen
class Budget:
    """Prices of an endpoint's answers, and the most that they may cost in a run, with those before a resume."""

    tokens: Annotated[int, Field(ge=1, le=10**15)] | None = None
    """Most tokens, of prompts and answers; None has no bound."""
    money: PositiveFloat | None = None
    """Most money, in the currency of the prices; None has no bound."""
    prompt_price: NonNegativeFloat = 0.0
    """Price of a million tokens of prompts."""
    answer_price: NonNegativeFloat = 0.0
    """Price of a million tokens of answers."""

    @model_validator(mode="after")
    def check_prices(self) -> Self:
        """Refuse a bound on money without a price. Prices without a bound state what a run has cost."""
        if self.money is not None and not self.priced:
            raise PydanticCustomError("budget", "money needs prompt_price and answer_price, of a million tokens each")
        return self

    @property
    def priced(self) -> bool:
        """Whether tokens have a price."""
        return self.prompt_price + self.answer_price > 0

    def cost(self, prompt: int, answer: int) -> float:
        """Money for these tokens."""
        return (prompt * self.prompt_price + answer * self.answer_price) / 1e6

    def passed(self, prompt: int, answer: int) -> str:
        """Which bound these tokens pass, in words; empty for none."""
        if self.tokens is not None and prompt + answer > self.tokens:
            return f"{self.tokens:,} tokens"
        if self.money is not None and self.cost(prompt, answer) > self.money:
            return f"{self.money:g} in money"
        return ""


@frozen
class Canaries:
    """Requests that are asked again now and then, since the model behind an address may be exchanged."""

    items: Annotated[int, Field(ge=1, le=1000)] = 8
    """How many: the first requests of a run."""
    every: Annotated[int, Field(ge=1, le=10**9)] = 500
    """Answers after which they are asked again."""
    most: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Share of them with another answer above which the run stops."""


@frozen
class Endpoint:
    """Requests to a model behind an endpoint: key, timeouts and retries."""

    model: Annotated[str, Field(min_length=1)] | None = None
    """The model's name at the endpoint; None is its only model."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; the key itself is not recorded. None sends no key."""
    timeout_seconds: PositiveFloat = 60.0
    """Longest wait for a connection, and for each part of an answer."""
    answer_seconds: PositiveFloat = 600.0
    """Longest time of one attempt, however slowly its answer comes."""
    verdict_seconds: PositiveFloat | None = None
    """Longest time of a request with all its attempts and pauses, after which it fails alone; None has no bound."""
    retries: NonNegativeInt = 6
    """Further attempts of a request after a transient failure. With the defaults below this covers an outage of about
    45 s."""
    backoff_seconds: PositiveFloat = 1.0
    """First pause; each next one is twice as long, with keyed jitter (between half and all of it)."""
    max_pause_seconds: PositiveFloat = 60.0
    """Longest pause of its own choice."""
    max_retry_after_seconds: PositiveFloat = 3600.0
    """Longest pause that an endpoint can request (Retry-After); of a longer one, this much."""
    concurrency: PositiveInt = 16
    """Most requests at a time; half as many after a refusal (429, 503), and one more after as many answers as there are
    places."""
    top_logprobs: Annotated[int, Field(ge=2, le=20)] = 20
    """Likeliest tokens that are requested where a judge reads log-probabilities of labels; some endpoints allow 5."""
    canaries: Canaries | None = None
    """Whether the model behind the address is watched; None has no canary items."""
    budget: Budget | None = None
    """Most tokens or money; the run stops before the request that would pass it, and can be resumed. None has no
    bound."""
    store: Annotated[str, Field(min_length=1)] | None = None
    """File that keeps answers for other runs and commands: the same request to the same address is sent once. None
    keeps them in the run alone."""

    @field_validator("api_key_env")
    @classmethod
    def check_name(cls, name: str | None) -> str | None:
        """Refuses an invalid variable name without repeating it, since it may be the key."""
        if name is not None and not (name.isascii() and name.isidentifier() and name == name.upper()):
            raise PydanticCustomError(
                "secret", "this is the NAME of an environment variable (capitals, digits and _), never the key itself"
            )
        return name


@frozen
class LoRA:
    """Low-rank adapters on chosen projections. Hu et al. 2021, arXiv:2106.09685."""

    rank: PositiveInt = 16
    alpha: PositiveFloat = 32.0
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Names of the projections that get an adapter."""


@frozen
class LatentSteps:
    """Latent steps before an answer in text. CoLaR, Tan et al. 2025, arXiv:2505.16552."""

    width: PositiveInt = 256
    """Hidden units of the head."""
    speed: Annotated[int, Field(ge=1, le=1024)] = 2
    """Tokens that a step stands for, which the prompt states."""
    speeds: Annotated[tuple[Annotated[int, Field(ge=1, le=1024)], ...], Field(min_length=1)] = (1, 2, 3, 4, 5)
    """Those that are imitated: one is drawn for each step of training."""
    steps: Annotated[int, Field(ge=1, le=65_536)] = 64
    """Most latent steps."""
    root: bool = True
    """Whether merged embeddings are over the root of their number, which keeps their variance; else over the number."""
    mark: Annotated[str, Field(min_length=1)] = "#"
    """Text of the token that begins and ends the steps (``###`` in the paper)."""
    answer: Annotated[str, Field(min_length=1)] = "####"
    """Text with which the answer of a demonstration begins; all before it is the reasoning."""


@frozen
class Controllers:
    """Matrices that shift output embeddings by strengths. LDC, arXiv:2412.14626; `posttrain.policies.controllers`."""

    count: Annotated[int, Field(ge=1, le=64)] = 3
    """Matrices, one for each dimension."""
    rows: Annotated[int, Field(ge=1, le=1024)] = 3
    """Most rows of strengths that a prompt gives, one for each sentence."""
    hidden: Annotated[int, Field(ge=1, le=4096)] = 16
    """Numbers in the state of the network that plans strengths."""
    ends: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = (".", "!", "?")
    """Texts that the last token of a sentence ends with."""
    alone: bool = True
    """Whether a batch with strengths trains the controllers only, and not the base."""
    seed: NonNegativeInt = 0
    """Of the network's first weights."""


@frozen
class Model:
    """The model of a role."""

    source: str
    """A bundled name (``pebble``), a Hugging Face folder, a GGUF file or a folder that holds one, a run's folder, the
    folder of a COMET model (``hparams.yaml``, ``checkpoints/model.ckpt``, ``encoder/``), which scores translations, a
    repository of the Hugging Face hub (``owner/name`` or ``owner/name@revision``), ``role:NAME`` for a copy of another
    role's model at the start of the stage (a reference, a critic's body), ``made`` for one that a stage makes (a
    merge), ``new`` for random weights of the given `shape`, or the address of an OpenAI-compatible server
    (``http://127.0.0.1:8000/v1``), whose model only writes text for a reward or a rollout."""
    shape: Shape | None = None
    """Kind and sizes of a ``new`` model."""
    base: Annotated[str, Field(min_length=1)] | None = None
    """Folder of the model that an adapter in `source` is made for. None takes the one that the adapter names where that
    lies in the adapter's own folder; another one is named here, since a stranger's file may not choose it. Of a COMET
    model, the folder of its encoder's config and tokenizer; None is ``encoder`` in its own."""
    trained: bool = False
    """Whether stages update it."""
    head: Literal["language", "value", "reward"] = "language"
    """``language`` gives next-token logits; ``value`` one number per token, of the state before it; ``reward`` one
    number per token, of the text up to its end."""
    outputs: Annotated[int, Field(ge=1, le=1024)] = 1
    """Numbers that a ``reward`` head gives of each text, in one pass: several heads, their standard deviations, or
    levels. The score is the first."""
    read_at: Annotated[str, Field(min_length=1)] | None = None
    """Text of the token, such as ``<end>``, at which a ``reward`` head is read: it stands after a completion in the
    place of the end token, in training and in rewards that encode text. None is the end token."""
    lora: LoRA | None = None
    """Train adapters only; None trains every weight."""
    shared: bool = False
    """Of a source ``role:NAME``: whether this is no copy, but the source's own weights in the same memory, without its
    adapters. Neither role may train them; adapters and heads are each role's own."""
    projection: PositiveInt | None = None
    """Width of a projection of the last states beside a language head, from which the model reads values of its own,
    for critics without a body and for losses of embeddings; None has none."""
    latent: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Numbers that a ``reward`` head infers about a user from pairs that stand before a text, and that its score
    depends on; None has no such part."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of weights and arithmetic."""
    context: PositiveInt | None = None
    """Longest sequence in tokens; None takes the model's own limit."""
    latent_steps: LatentSteps | None = None
    """Latent steps, drawn by a head beside a language head, before an answer in text; None takes those that a model was
    saved with, if any."""
    controllers: Controllers | None = None
    """Matrices that shift the output embeddings by the strengths in a task's field ``eps``; None takes those that a
    model was saved with, if any."""
    chat: bool = False
    """Of the policy: whether prompts that are text are given as a user's message, by the model's chat template. A
    recipe that is given a larger model than its own sets it where the model's folder has a template."""
    endpoint: Endpoint | None = None
    """Requests to a model behind an endpoint; None takes the defaults."""

    @property
    def is_remote(self) -> bool:
        """Whether the model is behind an endpoint."""
        return is_url(self.source)

    @model_validator(mode="after")
    def check_endpoint(self) -> Self:
        """Refuses settings of local models for an endpoint, and those of an endpoint for a local model."""
        if self.latent_steps is not None and (self.head != "language" or self.projection is not None):
            why = "latent steps are beside a language head; leave projection or head out"
            raise PydanticCustomError("latent_steps", why)
        if self.controllers is not None and self.latent_steps is not None:
            raise PydanticCustomError("controllers", "a model has latent steps or controllers; leave one of them out")
        if self.projection is not None and self.head != "language":
            raise PydanticCustomError("projection", "a projection is beside a language head; leave it or head out")
        if self.outputs > 1 and self.head != "reward":
            raise PydanticCustomError("outputs", "several outputs are those of a reward head; set head: reward")
        if self.read_at is not None and self.head != "reward":
            raise PydanticCustomError("read_at", "read_at is where a reward head is read; set head: reward")
        if self.latent is not None and (self.head != "reward" or self.outputs > 1):
            raise PydanticCustomError("latent", "latent is of a reward head with one output; set head: reward")
        if self.shared and not self.source.startswith("role:"):
            raise PydanticCustomError("shared", "shared weights are those of another role; set source: role:NAME")
        if self.shared and self.trained and self.lora is None:
            raise PydanticCustomError("shared", "shared weights are not trained; give adapters, lora: {}")
        if not self.is_remote:
            if self.endpoint is not None:
                raise PydanticCustomError("kind", "endpoint is set, but source is no address (http://..., https://...)")
            return self
        check_url(self.source)
        own = (self.shape, self.lora, self.context, self.projection, self.latent_steps, self.controllers)
        if self.trained or self.head != "language" or any(setting is not None for setting in own):
            raise PydanticCustomError(
                "kind",
                "source is an endpoint, which writes text only: leave out trained, head, shape, lora, projection, "
                "latent_steps, controllers and context",
            )
        return self


def copied_last(role: str, models: Mapping[str, Model]) -> int:
    """Sort key of roles that puts a copy after its source: the length of its chain of sources."""
    seen: list[str] = []
    while role in models and role not in seen and models[role].source.startswith("role:"):
        seen.append(role)
        role = models[role].source.removeprefix("role:")
    return len(seen)


def is_url(source: str) -> bool:
    """Whether a model's source is an endpoint."""
    return source.startswith(("http://", "https://"))


def check_url(source: str) -> None:
    """Refuses an invalid address, and one with a secret, by a validation error that does not repeat it."""
    try:
        parts = urlsplit(source)
        secret, sound = parts.username or parts.password or parts.query or parts.fragment, bool(parts.hostname)
        _ = parts.port
    except ValueError:
        secret, sound = None, False
    if secret:
        raise PydanticCustomError(
            "secret",
            "the address of an endpoint is recorded with the recipe, so it must have no user, password, query or "
            "fragment; give a key by the name of its environment variable: endpoint.api_key_env",
        )
    if not sound:
        raise PydanticCustomError(
            "kind", "this is not an address of an endpoint; write one like http://127.0.0.1:8000/v1"
        )
