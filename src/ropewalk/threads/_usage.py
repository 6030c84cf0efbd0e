"""What an answer cost, in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ropewalk.threads._checking import bare, own_mapping, refusal

_NAMES = {
    "input_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("completion_tokens", "output_tokens"),
    "total_tokens": ("total_tokens",),
}


@dataclass(frozen=True, slots=True)
class Usage:
    """How many tokens went in and came out.

    `total_tokens` is their sum unless it is given. What a provider says beside them,
    such as details, is in `extra`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = cast("int", None)
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _count(self.input_tokens, "usage.input_tokens")
        _count(self.output_tokens, "usage.output_tokens")
        if self.total_tokens is None:
            object.__setattr__(self, "total_tokens", self.input_tokens + self.output_tokens)
        _count(self.total_tokens, "usage.total_tokens")
        object.__setattr__(self, "extra", own_mapping(self.extra, "usage.extra"))

    @classmethod
    def from_openai(cls, raw: Mapping[str, Any]) -> Usage:
        """Read a dict with the names of Chat Completions or of the Responses API."""
        if not isinstance(raw, Mapping):
            raise refusal("usage", raw, "a Usage or a mapping")
        rest = dict(raw)
        found: dict[str, Any] = {}
        for name, keys in _NAMES.items():
            key = next((key for key in keys if rest.get(key) is not None), None)
            found[name] = None if key is None else rest.pop(key)
        counts = (found["input_tokens"] or 0, found["output_tokens"] or 0)
        return cls(*counts, found["total_tokens"], rest)

    def to_openai(self) -> dict[str, Any]:
        """A dict with the names of Chat Completions."""
        return {
            **self.extra,
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.total_tokens,
        }

    def to_stored(self) -> dict[str, Any]:
        """Plain values, as they are stored."""
        made: dict[str, Any] = {"input": self.input_tokens, "output": self.output_tokens}
        if self.total_tokens != self.input_tokens + self.output_tokens:
            made["total"] = self.total_tokens
        if self.extra:
            made["extra"] = self.extra
        return made

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Usage:
        """What `to_stored` gave; nothing is checked again."""
        spent, gained = stored["input"], stored["output"]
        return bare(
            cls,
            input_tokens=spent,
            output_tokens=gained,
            total_tokens=stored.get("total", spent + gained),
            extra=stored.get("extra") or {},
        )


def as_usage(value: Usage | Mapping[str, Any] | None) -> Usage | None:
    """A `Usage`, from one or from a dict of a provider."""
    if value is None or isinstance(value, Usage):
        return value
    return Usage.from_openai(value)


def _count(value: Any, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise refusal(name, value, "an int that is not negative")
