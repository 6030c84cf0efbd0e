"""`PromptView`: shared artifacts in the messages of one call, at the lowest price.

What the messages already say is left as it is, since a changed prefix is billed anew. What changed
is appended, as a patch if its base stands in the messages (`prompt_blocks`), else as a whole.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from ropewalk.coherence.conditional_read import sections_of
from ropewalk.coherence.patches import Shown, apply, patch, shown
from ropewalk.coherence.prices import ANTHROPIC, OPENAI, Prices
from ropewalk.coherence.prompt_blocks import (
    INTRODUCTION,
    Block,
    Standing,
    all_text,
    content_of,
    hash_of,
    role_of,
    text_of,
    write_block,
)
from ropewalk.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from ropewalk.coherence.core import CoherenceCore

Style: TypeAlias = Literal["openai", "anthropic"]
"""Whose messages they are. Those of LangChain are taken with either."""

_LOOKBACK: Final = 20
"""So many blocks of content Anthropic looks back from a breakpoint for a cached prefix."""
_KEPT_TEXTS: Final = 4096
_TRIES: Final = 8
_TOOL: Final = "read_artifact"


class Rendered(NamedTuple):
    """The messages of one call, with the artifacts in them."""

    messages: list[Any]
    """What to send, and to keep as the conversation: what is said next comes after it."""
    written: list[Block]
    """The blocks that this call brought; none if the messages said everything already."""
    rewritten: bool
    """Whether all artifacts were put anew, because that is cheaper or nothing is assumed."""
    tokens: int
    """The tokens of the messages."""


class _Current(NamedTuple):
    version: int
    whole: Shown
    hash: str


class _Draft(NamedTuple):
    block: Block
    base_hash: str = ""


@dataclass
class PromptView:
    """The artifacts that one agent is shown, in the messages of its calls.

    Nothing is remembered from call to call: what the agent has is read off the messages. So a
    view may be made anew for each call, in another process, on another branch of a conversation.

    `artifacts` names what is shown, or all below `prefix`. Those in `pointers` are shown as an
    outline, and the model reads their sections with the tool `tool()`. `count` counts the
    tokens of a text; without it four characters are one. `prices` decide what is cheapest over
    this call and `horizon` more. A whole text takes the place of patches after `most_patches`
    of them, if they are longer than `rebase_at` of the text, or always with `strict_full`.
    """

    core: CoherenceCore
    agent: str
    artifacts: Iterable[str] | None = None
    prefix: str = ""
    pointers: Iterable[str] = ()
    style: Style = "openai"
    prices: Prices | None = None
    count: Callable[[str], int] | None = None
    show: Callable[[Any], Any] | None = None
    """Turns a value that JSON cannot say into a text or plain data."""
    strict_full: bool = False
    most_patches: int = 8
    rebase_at: float = 1 / 3
    horizon: int = 10
    asked_after_patch: int = 0
    """How often the model asked for the whole text of what it had been given a patch of."""
    _patched: set[str] = field(default_factory=set, repr=False)
    _texts: OrderedDict[bytes, tuple[Shown, str]] = field(default_factory=OrderedDict, repr=False)

    def __post_init__(self) -> None:
        if self.style not in ("openai", "anthropic"):
            raise InvalidInput(f"style is 'openai' or 'anthropic', not {self.style!r:.80}")
        if isinstance(self.artifacts, str) or isinstance(self.pointers, str):
            raise InvalidInput("artifacts and pointers are lists of names")
        self._named = None if self.artifacts is None else sorted(set(self.artifacts))
        self._pointed = frozenset(self.pointers)
        self._prices = self.prices or (ANTHROPIC if self.style == "anthropic" else OPENAI)
        self._count = _four if self.count is None else lru_cache(_KEPT_TEXTS)(self.count)
        self._key = self.core.prompt_key()

    def render(
        self,
        messages: Sequence[Any],
        *,
        request: Mapping[str, Any] | None = None,
        cold: bool = False,
    ) -> Rendered:
        """The messages with what they lack of the newest versions, all at one moment.

        `request` is what else the call says: if it turns on the provider's own clearing or
        compaction, nothing is assumed and every artifact is written as a whole. `cold` says that
        the provider's cache has expired, so that everything may be put anew for nothing.
        """
        current = self._current()
        standing = Standing(messages, self._key)
        drafts = self._lacking(current, standing)
        is_rewritten = True
        if clears(request):
            drafts = self._anew(current)
            made = _appended(self._without(messages, standing), self._message(drafts))
        elif not self._ours(standing):
            drafts = self._anew(current)
            made = self._at_front(messages, drafts)
        elif self._is_rewrite_cheaper(messages, standing, current, drafts, cold):
            drafts = self._anew(current)
            made = self._at_front(self._without(messages, standing), drafts)
        else:
            is_rewritten = False
            made = _appended(list(messages), self._message(drafts))
        written = [one.block for one in drafts]
        last = {**standing.last, **{block.id: block for block in written}}
        self._patched = {name for name, block in last.items() if block.kind == "change"}
        tokens = self._tokens(made)
        if self.style == "anthropic":
            made = self._marked(made)
        return Rendered(made, written, is_rewritten, tokens)

    # What is shown.

    def _current(self) -> dict[str, _Current]:
        for attempt in range(_TRIES):
            if self._named is None:
                names = set(self.core.versions(self.prefix)) | self._pointed
            else:
                names = set(self._named) | self._pointed
            there = sorted(self.core.newest(names))
            try:
                found = self.core.snapshot(self.agent, there)
            except NotFound:
                if attempt == _TRIES - 1:
                    raise
                continue  # Deleted meanwhile: ask again what there is.
            break
        return {name: self._shown(one) for name, one in found.items()}

    def _shown(self, artifact: Any) -> _Current:
        id = artifact.origin.id
        known = self._texts.get(id)
        if known is None:
            whole = self._text(artifact.value)
            known = self._texts[id] = whole, hash_of(whole.text)
            if len(self._texts) > _KEPT_TEXTS:
                self._texts.popitem(last=False)
        return _Current(artifact.version, *known)

    def _text(self, value: Any) -> Shown:
        return shown(value if self.show is None else self.show(value))

    # What is lacking.

    def _lacking(self, current: Mapping[str, _Current], standing: Standing) -> list[_Draft]:
        """The blocks to append, by the names of the artifacts."""
        drafts = []
        for name in sorted(current.keys() | standing.last.keys()):
            last, now = standing.last.get(name), current.get(name)
            if now is None:
                if last is not None and last.kind != "deleted" and self._shows(name):
                    gone = Block("deleted", name, last.version, hash_of(""), "")
                    drafts.append(_Draft(gone))
            elif name in self._pointed:
                if last is None or last.kind != "outline" or last.hash != now.hash:
                    drafts.append(self._whole(name, now))
            elif last is None or standing.chain(last) is None or last.hash != now.hash:
                drafts.append(self._change(name, now, standing) or self._whole(name, now))
        return drafts

    def _shows(self, name: str) -> bool:
        if name in self._pointed:
            return True
        return name.startswith(self.prefix) if self._named is None else name in self._named

    def _change(self, name: str, now: _Current, standing: Standing) -> _Draft | None:
        """A patch against the newest version in the messages that is in the history, too."""
        if self.strict_full:
            return None
        for base in standing.versions(name):
            if base.version >= now.version:
                continue
            content = self.core.older(name, base.version)
            if content is None:
                continue
            old = self._text(content.fresh())
            if hash_of(old.text) != base.hash:
                continue  # Of another history: the store was put back from a copy.
            change = patch(old, now.whole)
            chain = standing.chain(base)
            if change is None or chain is None or apply(old, change) != now.whole:
                return None
            length = len(change) + sum(len(block.body) for block in chain[1:])
            if len(chain) > self.most_patches or length > self.rebase_at * len(now.whole.text):
                return None
            block = Block("change", name, now.version, now.hash, change, base.version)
            return _Draft(block, base.hash)
        return None

    def _whole(self, name: str, now: _Current) -> _Draft:
        if name not in self._pointed:
            return _Draft(Block("full", name, now.version, now.hash, now.whole.text))
        lines = [f"{len(now.whole.text)} characters; read sections with the tool {_TOOL}:"]
        lines += [f"- {one.name} ({len(one.text)})" for one in sections_of(now.whole)]
        return _Draft(Block("outline", name, now.version, now.hash, "\n".join(lines)))

    def _anew(self, current: Mapping[str, _Current]) -> list[_Draft]:
        return [self._whole(name, current[name]) for name in sorted(current)]

    # What is cheapest.

    def _is_rewrite_cheaper(
        self,
        messages: Sequence[Any],
        standing: Standing,
        current: Mapping[str, _Current],
        drafts: Sequence[_Draft],
        cold: bool,
    ) -> bool:
        """Whether to put all artifacts anew, at the front, instead of appending changes.

        Everything behind the front is then billed as new. That pays where nothing is cached: a
        prompt below the smallest prefix, or a cache that has expired.
        """
        old = self._ours(standing)
        if not drafts and not cold and len(old) <= len(current):
            return False  # They say each artifact once.
        total = self._tokens(messages)
        ours = sum(self._count(block.body) for block in old)
        added = sum(self._count(one.block.body) for one in drafts)
        anew = sum(self._count(one.block.body) for one in self._anew(current))
        front = self._tokens(messages[: self._front(messages)])
        append = self._cost(total + added, 0 if cold else total)
        rewrite = self._cost(total - ours + anew, 0 if cold else front)
        return rewrite < append

    def _cost(self, tokens: int, cached: int) -> float:
        """What this call and those that follow cost, if so many tokens are cached before it."""
        prices = self._prices
        if not prices.caches(tokens):
            return prices.cost(plain=tokens * (1 + self.horizon))
        first = prices.cost(read=cached, written=tokens - cached)
        return first + prices.cost(read=tokens * self.horizon)

    def _tokens(self, messages: Iterable[Any]) -> int:
        return sum(self._count(all_text(message)) for message in messages)

    # Messages.

    def _message(self, drafts: Sequence[_Draft], introduction: str = "") -> Any | None:
        if not drafts:
            return None
        blocks = [write_block(one.block, self._key, one.base_hash) for one in drafts]
        text = introduction + "\n".join(blocks)
        if self.style == "anthropic":
            return {"role": "user", "content": [{"type": "text", "text": text}]}
        return {"role": "user", "content": text}

    def _front(self, messages: Sequence[Any]) -> int:
        """Where the artifacts stand that agents share: behind the first message of the system."""
        return int(bool(messages) and role_of(messages[0]) in ("system", "developer"))

    def _at_front(self, messages: Sequence[Any], drafts: Sequence[_Draft]) -> list[Any]:
        message = self._message(drafts, INTRODUCTION)
        front = self._front(messages)
        made = list(messages)
        return made if message is None else [*made[:front], message, *made[front:]]

    def _ours(self, standing: Standing) -> list[Block]:
        """The blocks of the artifacts that this view shows."""
        everywhere = standing.places.values()
        return [block for blocks in everywhere for block, _, _ in blocks if self._shows(block.id)]

    def _without(self, messages: Sequence[Any], standing: Standing) -> list[Any]:
        """The messages without our blocks."""
        touched: dict[int, dict[int, list[tuple[int, int]]]] = {}
        for place, blocks in standing.places.items():
            spans = [(start, end) for block, start, end in blocks if self._shows(block.id)]
            touched.setdefault(place.message, {})[place.part] = spans
        made = []
        for number, message in enumerate(messages):
            if number not in touched:
                made.append(message)
                continue
            content = content_of(message)
            is_text = isinstance(content, str)
            parts = [content] if is_text else list(content)
            kept = []
            for index, part in enumerate(parts):
                cuts = touched[number].get(index)
                rest = part if cuts is None else _cut(part, cuts)
                if rest is not None:
                    kept.append(rest)
            if kept:
                made.append(_with_content(message, kept[0] if is_text else kept))
        return made

    def _marked(self, messages: list[Any]) -> list[Any]:
        """With breakpoints of Anthropic's cache, and only ours.

        At the end of what agents share, at the newest message, and, if more blocks came since the
        last call than are looked back, where that call ended. The fourth is left to the system.
        """
        made = [_unmarked(message) for message in messages]
        front = self._front(made)
        ends = [len(made) - 1]
        if self._tokens(made[: front + 1]) >= self._prices.minimum_prefix:
            ends.append(front)
        answers = [i for i, one in enumerate(made) if role_of(one) == "assistant"]
        if answers and sum(map(_blocks, made[answers[-1] :])) >= _LOOKBACK:
            ends.append(answers[-1] - 1)
        for index in {end for end in ends if end >= 0}:
            made[index] = _mark(made[index])
        return made

    # What the model asks for.

    def tool(self) -> dict[str, Any]:
        """The tool by which a model reads an artifact or a section of it; see `answer`."""
        parameters = {
            "type": "object",
            "properties": {
                "artifact": {"type": "string", "description": "The id of a shared artifact."},
                "section": {"type": "string", "description": "Its name; without it, everything."},
            },
            "required": ["artifact"],
        }
        about = "Read a shared artifact, or one of its sections, as it is now."
        if self.style == "anthropic":
            return {"name": _TOOL, "description": about, "input_schema": parameters}
        function = {"name": _TOOL, "description": about, "parameters": parameters}
        return {"type": "function", "function": function}

    def answer(self, arguments: Mapping[str, Any] | str) -> str:
        """What a model is given that called the tool with these arguments, errors included."""
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
        name, wanted = given.get("artifact"), given.get("section")
        if not isinstance(name, str) or not self._shows(name):
            return f"There is no artifact {name!r:.80}."
        try:
            whole = self._text(self.core.read(self.agent, name).value)
        except NotFound:
            return f"There is no artifact {name!r:.80}."
        if not wanted:
            self.asked_after_patch += name in self._patched
            return whole.text
        sections = sections_of(whole)
        text = next((one.text for one in sections if one.name == wanted), None)
        if text is not None:
            return text
        return f"There is no section {wanted!r:.80}. There are: " + ", ".join(
            one.name for one in sections
        )


def with_artifacts(
    core: CoherenceCore, agent: str, messages: Sequence[Any], **options: Any
) -> list[Any]:
    """Messages with the newest versions of artifacts in them: `PromptView` for one call."""
    request, cold = options.pop("request", None), options.pop("cold", False)
    return PromptView(core, agent, **options).render(messages, request=request, cold=cold).messages


def clears(request: Mapping[str, Any] | None) -> bool:
    """Whether a request has the provider change or keep the conversation by itself."""
    if not request:
        return False
    inner = request.get("extra_body")
    if isinstance(inner, Mapping) and clears(inner):
        return True
    kept = ("context_management", "previous_response_id", "conversation", "container_context")
    return request.get("truncation") == "auto" or any(request.get(name) for name in kept)


def _four(text: str) -> int:
    return -(-len(text) // 4)


def _appended(messages: list[Any], added: Any | None) -> list[Any]:
    """With a message at the end, but before the beginning of an answer that is to be continued."""
    if added is None:
        return messages
    if messages and role_of(messages[-1]) in ("assistant", "ai"):
        return [*messages[:-1], added, messages[-1]]
    return [*messages, added]


def _cut(part: Any, spans: Sequence[tuple[int, int]]) -> Any | None:
    """A part without some spans of its text; None if nothing is left."""
    text = text_of(part) or ""
    for start, end in reversed(spans):
        text = text[:start] + text[end:].removeprefix("\n")
    text = text.removeprefix(INTRODUCTION)
    if not text.strip():
        return None
    return text if isinstance(part, str) else {**part, "text": text}


def _with_content(message: Any, content: Any) -> Any:
    if isinstance(message, Mapping):
        return {**message, "content": content}
    if isinstance(message, tuple):
        return message[0], content
    return message.model_copy(update={"content": content})


def _blocks(message: Any) -> int:
    content = content_of(message)
    return len(content) if isinstance(content, list) else 1


def _unmarked(message: Any) -> Any:
    content = content_of(message)
    if not isinstance(content, list):
        return message
    parts = [
        {name: value for name, value in part.items() if name != "cache_control"}
        if isinstance(part, Mapping) and "cache_control" in part
        else part
        for part in content
    ]
    return message if parts == content else _with_content(message, parts)


def _mark(message: Any) -> Any:
    content = content_of(message)
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        if isinstance(part, Mapping) and part.get("type") not in ("thinking", "redacted_thinking"):
            parts[index] = {**part, "cache_control": {"type": "ephemeral"}}
            return _with_content(message, parts)
    return message
