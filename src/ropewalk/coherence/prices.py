"""What a provider bills for the input of a call, and by which rules it caches prefixes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ropewalk.errors import InvalidInput, NotFound


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a model's input in dollars for a million tokens, and the rules of its cache."""

    input: float
    cache_read: float
    cache_write: float
    minimum_prefix: int = 1024
    """A shorter prefix is not cached."""

    def __post_init__(self) -> None:
        if min(self.input, self.cache_read, self.cache_write, self.minimum_prefix) < 0:
            raise InvalidInput(f"prices are not negative: {self!r}")

    def caches(self, tokens: int) -> bool:
        """Whether a prompt of so many tokens is cached, and that is cheaper than to send it."""
        return tokens >= self.minimum_prefix and self.cache_read < self.input

    def cost(self, *, plain: int = 0, read: int = 0, written: int = 0) -> float:
        """Dollars for tokens that met no cache, were read from it, or written to it."""
        spent = plain * self.input + read * self.cache_read + written * self.cache_write
        return spent / 1_000_000


ANTHROPIC: Final = Prices(input=3.0, cache_read=0.3, cache_write=3.75)
"""The proportions that hold for all models of Anthropic, with the five-minute cache."""
OPENAI: Final = Prices(input=1.25, cache_read=0.125, cache_write=1.25)
"""Those of OpenAI's models that do not charge for writes."""

_MINIMUM: Final = (
    ("haiku-4-5", 4096),
    ("opus-4-5", 4096),
    ("opus-4-6", 4096),
    ("opus-5", 512),
    ("fable-5", 512),
    ("mythos-5", 512),
)
"""The smallest prefixes of Anthropic's models that are not 1,024 tokens."""
_SAMPLE: Final = 10_000


def prices_of(model: str, provider: str | None = None) -> Prices:
    """The prices of a model, from the package `genai-prices`, which asks no server.

    Raises `NotFound` for a model that the package does not know.
    """
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        raise InvalidInput(
            "prices of models come from a package that is not installed: "
            "pip install 'ropewalk[tokens]', or give your own `Prices`"
        ) from None

    def rate(usage: Usage) -> float:
        priced = calc_price(usage, model_ref=model, provider_id=provider)
        return float(priced.input_price) / _SAMPLE * 1_000_000

    try:
        plain = rate(Usage(input_tokens=_SAMPLE))
        read = rate(Usage(input_tokens=_SAMPLE, cache_read_tokens=_SAMPLE))
        written = rate(Usage(input_tokens=_SAMPLE, cache_write_tokens=_SAMPLE))
    except LookupError as error:
        raise NotFound(
            f"there is no price for model {model!r:.80}: give your own `Prices`"
        ) from error
    name = model.replace(".", "-")
    minimum = next((least for part, least in _MINIMUM if part in name), 1024)
    return Prices(plain, read, written, minimum)
