"""Pydantic models as fields by name, and back.

What depends on the class alone is found once, because messages are models and there are
many of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any, Final

from ropewalk.codec._classes import (
    MODEL_SLOTS,
    default_name,
    inherited,
    is_computed,
    simple_default,
    vars_of,
)
from ropewalk.codec._registry import Entry
from ropewalk.errors import ChangedMeanwhile, ClassChanged, NotStorable

Fields = dict[str, Any]
EXTRA: Final = "+"
"""Stands before the name of a pydantic model's extra value."""

_MANY: Final = 1024
ATTEMPTS: Final = 8
"""How often an object is read again while others change it."""

MODEL_PARTS: Final = attrgetter(*MODEL_SLOTS)
"""All that a pydantic model holds."""


@dataclass(slots=True, eq=False)
class ModelPlan:
    """What depends on the class of a model alone, computed once."""

    cls: Any
    known: dict[str, Any]
    """The fields of the class, as they were when this was made."""
    names: list[str]
    public: frozenset[str]
    private: frozenset[str]
    defaults: dict[str, Any]
    """The private attributes that have a default."""
    parts: Callable[[Any], tuple[Any, ...]]
    """All that an object holds, read without code of its class."""
    allows_extra: bool
    is_root: bool
    is_simple: bool
    """Whether objects have nothing but fields and what is extra."""
    marks: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)
    """Sets of names that were met, by what is stored for them."""

    def set_of(self, marks: list[str]) -> frozenset[str]:
        """The names that are stored as these marks."""
        key = tuple(marks)
        found = self.marks.get(key)
        if found is None:
            found = frozenset(marks)
            if len(self.marks) < _MANY:
                self.marks[key] = found
        return found

    def build(self, fields: Fields, named: frozenset[str]) -> Any:
        """A model with just these fields, which become its own, where that is simple."""
        return made_model(self.cls, fields, set(named), {} if self.allows_extra else None, None)


def plan_of(entry: Entry) -> ModelPlan:
    """The plan of a model; made again if the class was rebuilt."""
    plan: ModelPlan | None = entry.plan
    cls: Any = entry.cls
    if plan is None or plan.known is not vars_of(cls)["__pydantic_fields__"]:
        plan = _make_plan(cls)
        object.__setattr__(entry, "plan", plan)
    return plan


def _make_plan(cls: Any) -> ModelPlan:
    known = vars_of(cls)["__pydantic_fields__"]
    private = inherited(cls, "__private_attributes__") or {}
    is_root = bool(inherited(cls, "__pydantic_root_model__"))
    is_usual = inherited(cls, "__getattribute__") is object.__getattribute__
    return ModelPlan(
        cls=cls,
        known=known,
        names=list(known),
        public=frozenset(known),
        private=frozenset(private),
        defaults=_private_defaults(private),
        parts=MODEL_PARTS if is_usual else _quiet_parts,
        allows_extra=inherited(cls, "model_config").get("extra") == "allow",
        is_root=is_root,
        is_simple=is_usual and not private and not is_root,
    )


def _quiet_parts(value: Any) -> tuple[Any, ...]:
    return tuple([object.__getattribute__(value, name) for name in MODEL_SLOTS])


def _private_defaults(private: dict[str, Any]) -> dict[str, Any]:
    undefined = sys.modules["pydantic_core"].PydanticUndefined
    return {
        name: attribute
        for name, attribute in private.items()
        if attribute.default is not undefined or attribute.default_factory is not None
    }


def set_unless_marked(fields: Fields) -> set[str]:
    """The fields of a pydantic model that count as set where nothing else is stored."""
    return {name.removeprefix(EXTRA) for name in fields if not name.startswith("_")}


def take_model_apart(entry: Entry, value: Any) -> tuple[Fields, list[str] | None]:
    """The fields of a model, and which of them were set, where it is not all of them."""
    plan = plan_of(entry)
    held, named, extra, private = plan.parts(value)
    if not extra and not private and not plan.defaults:
        # Most have nothing but fields. Others may change it between two calls.
        marks = None if named == plan.public else sorted(named)
        fields = held.copy()
        # Names are added to those that were set, never taken away.
        whole = len(named) == len(plan.public if marks is None else marks)
        if whole and list(fields) == plan.names:
            return fields, marks
    held, named, extra, private = _parts_of(plan, value)
    if not private and not extra and list(held) == plan.names and not plan.defaults:
        return held, None if named == plan.public else sorted(named)
    _refuse_partial(plan, value, held, private)
    fields = {name: held[name] for name in plan.names}
    fields |= {EXTRA + name: one for name, one in extra.items()}
    fields |= private
    return fields, None if named == set_unless_marked(fields) else sorted(named)


def _parts_of(plan: ModelPlan, value: Any) -> tuple[Fields, set[str], Fields, Fields]:
    """Copies of all that a model holds, as it was at one moment.

    Others may change it between the calls, so a part that does not stay is taken again.
    """
    for _ in range(ATTEMPTS):
        held, named_now, extra_now, private_now = plan.parts(value)
        named = named_now.copy()
        fields = held.copy()
        if not extra_now and not private_now:
            if named == named_now:
                return fields, named, {}, {}
            continue
        extra = {} if extra_now is None else extra_now.copy()
        private = {} if private_now is None else private_now.copy()
        extra_again = {} if extra_now is None else extra_now.copy()
        same = same_fields(fields, held.copy()) and same_fields(extra, extra_again)
        if same and named == named_now:
            return fields, named, extra, private
    raise ChangedMeanwhile


def same_fields(one: Fields, other: Fields) -> bool:
    """Whether two copies of what an object holds have the same values in the same order."""
    return list(one) == list(other) and all(map(is_, one.values(), other.values()))


def _refuse_partial(plan: ModelPlan, value: Any, held: Fields, private: Fields) -> None:
    name = default_name(type(value))
    hidden = [one for one in held.keys() - plan.public if not is_computed(plan.cls, one)]
    if hidden:
        raise NotStorable(
            f"{name}: {sorted(hidden)} are set but are not fields, so they would be lost"
        )
    unset = plan.public - held.keys()
    if unset:
        raise NotStorable(f"{name}: the fields {sorted(unset)} are not set")
    absent = plan.defaults.keys() - private.keys()
    if absent:
        raise NotStorable(f"{name}: {sorted(absent)} are not set")


def build_model(entry: Entry, fields: Fields, fields_set: list[str] | None) -> Any:
    """A model of its fields, which become its own."""
    plan = plan_of(entry)
    if list(fields) == plan.names and plan.is_simple:
        return plan.build(fields, plan.public if fields_set is None else plan.set_of(fields_set))
    return _build_carefully(entry, plan, fields, fields_set)


_new = object.__new__
_set = object.__setattr__


def made_model(cls: Any, held: Fields, named: set[str], extra: Any, private: Any) -> Any:
    """A model of all that it holds."""
    built = _new(cls)
    _set(built, "__dict__", held)
    _set(built, "__pydantic_fields_set__", named)
    _set(built, "__pydantic_extra__", extra)
    _set(built, "__pydantic_private__", private)
    return built


def _build_carefully(
    entry: Entry, plan: ModelPlan, fields: Fields, fields_set: list[str] | None
) -> Any:
    known = plan.known
    extra = {name[1:]: value for name, value in fields.items() if name.startswith(EXTRA)}
    private = {name: value for name, value in fields.items() if name.startswith("_")}
    held = {name: fields[name] for name in known if name in fields}
    unknown = fields.keys() - held.keys() - private.keys() - {EXTRA + name for name in extra}
    unknown |= private.keys() - plan.private
    if extra and not plan.allows_extra:
        unknown |= {EXTRA + name for name in extra}
    defaults = {
        name: default
        for name, default in _defaults({**known, **plan.defaults}).items()
        if name not in fields
    }
    required = [name for name in (*known, *plan.defaults) if name not in fields]
    missing = [name for name in required if name not in defaults]
    if unknown or missing:
        raise changed(entry, unknown, missing)
    named = set_unless_marked(fields) if fields_set is None else set(fields_set)
    ordered = {name: held[name] if name in held else defaults[name]() for name in known}
    if plan.is_root:
        return _made_root(entry.cls, ordered, named)
    private |= {name: defaults[name]() for name in plan.defaults if name not in private}
    owned = private if plan.private or private else None
    return made_model(entry.cls, ordered, named, extra if plan.allows_extra else None, owned)


def _defaults(declared: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """What gives fields and private attributes their values without code of the class."""
    undefined = sys.modules["pydantic_core"].PydanticUndefined
    found = {
        name: simple_default(one.default, one.default_factory, undefined)
        for name, one in declared.items()
    }
    return {name: one for name, one in found.items() if one is not None}


def _made_root(cls: Any, held: Fields, named: set[str]) -> Any:
    """A root model has no extra and no private values."""
    built = _new(cls)
    _set(built, "__dict__", held)
    _set(built, "__pydantic_fields_set__", named)
    return built


def changed(entry: Entry, unknown: Any, missing: Any) -> ClassChanged:
    """The error for stored fields that do not fit the class any more."""
    parts = []
    if unknown:
        parts.append(f"the class no longer has {sorted(unknown)}")
    if missing:
        parts.append(
            f"nothing is stored for {sorted(missing)}, which has no default, or one that only "
            "code of the class can make"
        )
    return ClassChanged(
        f"a stored {entry.name} does not fit the class: {', and '.join(parts)}. "
        f"Raise its version and give register migrations={{{entry.version}: function}}"
    )
