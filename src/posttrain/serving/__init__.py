"""Models over the OpenAI protocol: `client` asks one that somebody else serves, `server` offers one of ours.

A role whose model is an endpoint writes text, and that is all: it has no token ids, no log-probabilities and no weights
here. What asks it goes through `posttrain.engines.Writer`, which a model of our own is too.
"""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.errors import PosttrainError


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


class NoAnswer(PosttrainError):
    """An endpoint that is there could not answer one request; others may fare better."""


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
