"""The model of a role: source, adapter, head, and endpoint."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.shapes import Shape


@frozen
class Endpoint:
    """How a model that is served elsewhere is asked."""

    model: Annotated[str, Field(min_length=1)] | None = None
    """Its name there; None takes the only one that the endpoint offers."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; the key itself is never written down. None sends no key."""
    timeout_seconds: PositiveFloat = 60.0
    """Longest wait for a connection, and for each next piece of an answer."""
    retries: NonNegativeInt = 6
    """Further tries of a request that failed for a reason that may pass. With the pauses below, an outage of about 45 s
    is waited for."""
    backoff_seconds: PositiveFloat = 1.0
    """First pause; each next one is twice as long, and a keyed share of it (between half and all) is waited."""
    max_pause_seconds: PositiveFloat = 60.0
    """Longest pause, also where the endpoint asks for a longer one (Retry-After)."""
    concurrency: PositiveInt = 16
    """Most requests at a time."""

    @field_validator("api_key_env")
    @classmethod
    def check_name(cls, name: str | None) -> str | None:
        """Refuse what is no variable's name, without repeating it: it may be the key."""
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
class Model:
    """The model that plays a role."""

    source: str
    """A bundled name (``pebble``), a Hugging Face folder, ``role:NAME`` for a copy of another role's model as it is
    when the stage begins (a reference, a critic's body), ``made`` for one that a stage makes (a merge), ``new`` for
    random weights of the given `shape`, or the address of an OpenAI-compatible server (``http://127.0.0.1:8000/v1``),
    whose model can write text for a reward or a rollout and nothing else."""
    shape: Shape | None = None
    """Kind and sizes of a ``new`` model."""
    trained: bool = False
    """Whether stages update it."""
    head: Literal["language", "value", "reward"] = "language"
    """``language`` gives next-token logits; ``value`` one number a token, of the state before it; ``reward`` one number
    a token, of the text up to its end."""
    lora: LoRA | None = None
    """Train adapters only; None trains every weight."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of weights and arithmetic."""
    context: PositiveInt | None = None
    """Longest sequence in tokens; None takes the model's own limit."""
    endpoint: Endpoint | None = None
    """How a model that is served elsewhere is asked; None takes the defaults."""

    @property
    def is_remote(self) -> bool:
        """Whether it is served elsewhere."""
        return is_url(self.source)

    @model_validator(mode="after")
    def check_endpoint(self) -> Self:
        """Refuse settings that an endpoint's model does not have, and those of an endpoint for any other."""
        if not self.is_remote:
            if self.endpoint is not None:
                raise PydanticCustomError("kind", "endpoint is set, but source is no address (http://..., https://...)")
            return self
        check_url(self.source)
        if self.trained or self.head != "language" or self.shape or self.lora or self.context:
            raise PydanticCustomError(
                "kind", "source is an endpoint, which writes text only: trained, head, shape, lora and context are out"
            )
        return self


def is_url(source: str) -> bool:
    """Whether a model's source is an endpoint."""
    return source.startswith(("http://", "https://"))


def check_url(source: str) -> None:
    """Refuse an address that holds a secret, or is none. Raises a validation error that does not repeat it."""
    try:
        parts = urlsplit(source)
        secret, sound = parts.username or parts.password or parts.query or parts.fragment, bool(parts.hostname)
        _ = parts.port
    except ValueError:
        secret, sound = None, False
    if secret:
        raise PydanticCustomError(
            "secret",
            "the address of an endpoint is written down with the recipe, so it holds no user, password, query or "
            "fragment; give a key by the name of its environment variable: endpoint.api_key_env",
        )
    if not sound:
        raise PydanticCustomError("kind", "this is no address of an endpoint; one looks like http://127.0.0.1:8000/v1")
