"""Objects of data classes as fields by name, and back.

Taking apart refuses what fields do not show. Putting together runs no code of the class:
an object is made by `object.__new__` or `tuple.__new__` (a Struct by msgspec), and its
values go into its `__dict__` or through the descriptors of its slots.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from types import MemberDescriptorType
from typing import Any, Final

from ropewalk.codec import _classes
from ropewalk.codec._atoms import atom_of
from ropewalk.codec._classes import CACHED_HASH, inherited, vars_of
from ropewalk.codec._models import (
    ATTEMPTS,
    Fields,
    build_model,
    changed,
    same_fields,
    take_model_apart,
)
from ropewalk.codec._registry import Entry, Registry
from ropewalk.errors import ChangedMeanwhile, ClassChanged, NotStorable

_STRUCT_HASH: Final = "__msgspec_cached_hash__"
"""The slot in which a Struct caches its hash; msgspec fills it again."""

_new: Final = object.__new__
_get: Final = object.__getattribute__
_set: Final = object.__setattr__


@dataclasses.dataclass(slots=True, eq=False)
class RecordPlan:
    """What depends on the class of a record alone, computed once."""

    names: list[str]
    defaults: dict[str, Callable[[], Any]]
    """What gives fields that are not stored their values, where that runs no code."""
    slots: dict[str, MemberDescriptorType]
    """All slots of the class, also those that are no fields."""
    has_dict: bool
    caches_hash: bool
    """Whether its objects cache their hash, as attrs classes may."""
    lazy: frozenset[str]
    """The names of cached properties."""
    only_dict: bool
    """Whether the `__dict__` of an object holds all of its fields, and can be read directly."""


def record_plan_of(entry: Entry) -> RecordPlan:
    """The plan of a record that is no pydantic model."""
    plan: RecordPlan | None = entry.plan
    if plan is None:
        plan = _make_plan(entry)
        object.__setattr__(entry, "plan", plan)
    return plan


def _make_plan(entry: Entry) -> RecordPlan:
    cls, names = entry.cls, _classes.fields_of(entry.cls, entry.shape)
    held: dict[str, Any] = {}
    for base in reversed(_classes.mro_of(cls)):
        held.update(vars_of(base))
    slots = {name: one for name, one in held.items() if type(one) is MemberDescriptorType}
    if entry.shape == "struct":
        slots.pop(_STRUCT_HASH, None)
    others = held.keys() - set(names)
    return RecordPlan(
        names=names,
        defaults=_defaults_of(entry),
        slots=slots,
        has_dict="__dict__" in held,
        caches_hash=entry.shape == "attrs" and _classes.caches_hash(cls),
        lazy=frozenset(name for name in others if _classes.is_computed(cls, name)),
        only_dict=not slots and held.get("__getattribute__") is object.__getattribute__,
    )


def _defaults_of(entry: Entry) -> dict[str, Callable[[], Any]]:
    given = _given_defaults(entry.cls, entry.shape)
    found = {name: _classes.simple_default(*one) for name, one in given.items()}
    return {name: one for name, one in found.items() if one is not None}


def _given_defaults(cls: Any, shape: _classes.Shape) -> dict[str, tuple[Any, Any, Any]]:
    """The default of each field, its factory, and what stands where there is none."""
    if shape == "namedtuple":
        made = inherited(cls, "_field_defaults") or {}
        return {name: (value, None, None) for name, value in made.items()}
    if shape == "dataclass":
        declared = inherited(cls, "__dataclass_fields__").values()
        absent: Any = dataclasses.MISSING
        return {one.name: (one.default, one.default_factory, absent) for one in declared}
    if shape == "attrs":
        attr = sys.modules["attr"]
        given = {}
        for one in inherited(cls, "__attrs_attrs__"):
            made = type(one.default) is attr.Factory and not one.default.takes_self
            given[one.name] = (one.default, one.default.factory if made else None, attr.NOTHING)
        return given
    core = sys.modules["msgspec._core"]
    names = _classes.struct_part(cls, "__struct_fields__")
    values = _classes.struct_part(cls, "__struct_defaults__")
    return {
        name: (one, one.factory if type(one) is core.Factory else None, core.NODEFAULT)
        for name, one in zip(names[len(names) - len(values) :], values, strict=True)
    }


def take_apart(entry: Entry, value: Any) -> tuple[Fields, list[str] | None]:
    """The fields of an object, and for a pydantic model which of them were set.

    Raises NotStorable, also for whatever the class itself raises meanwhile.
    """
    try:
        if entry.shape == "model":
            return take_model_apart(entry, value)
        return _take_apart(entry, record_plan_of(entry), value), None
    except (NotStorable, ChangedMeanwhile, RecursionError, MemoryError):
        raise
    except Exception as exc:
        if says_changed(exc):
            raise ChangedMeanwhile from exc
        raise NotStorable(f"{entry.name}: its fields cannot be read: {_shown(exc)}") from exc


def _take_apart(entry: Entry, plan: RecordPlan, value: Any) -> Fields:
    held, placed = _held_and_placed(plan, value)
    if plan.only_dict and list(held) == plan.names:
        return held
    if entry.shape == "namedtuple":
        items = list(tuple.__iter__(value))
        if len(items) != len(plan.names):
            raise NotStorable(
                f"{entry.name}: it has {len(items)} items for {len(plan.names)} names"
            )
        fields = dict(zip(plan.names, items, strict=True))
    else:
        fields = {}
        for name in plan.names:
            where = placed if name in placed else held
            fields[name] = where[name] if name in where else _attribute(entry, value, name)
    hidden = (held.keys() | placed.keys()) - fields.keys() - plan.lazy
    if plan.caches_hash:
        hidden.discard(CACHED_HASH)
    hidden |= held.keys() & placed.keys()  # A slot hides what has its name in the `__dict__`.
    if hidden:
        raise NotStorable(
            f"{entry.name}: {sorted(hidden)} are set but are not fields, so they would be lost; "
            "declare them as fields, or give register encode= and decode="
        )
    return fields


def _held_and_placed(plan: RecordPlan, value: Any) -> tuple[Fields, Fields]:
    """What is in the `__dict__` and in the slots of an object, as it was at one moment."""
    held, placed = _read(plan, value)
    if not plan.slots:
        return held, placed  # One copy.
    for _ in range(ATTEMPTS):
        seen, seen_placed = held, placed
        held, placed = _read(plan, value)
        if same_fields(held, seen) and same_fields(placed, seen_placed):
            return held, placed
    raise ChangedMeanwhile


def _read(plan: RecordPlan, value: Any) -> tuple[Fields, Fields]:
    placed: Fields = {}
    for name, slot in plan.slots.items():
        try:
            placed[name] = slot.__get__(value)
        except AttributeError:
            continue
    return _get(value, "__dict__").copy() if plan.has_dict else {}, placed


def _attribute(entry: Entry, value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except (RecursionError, MemoryError):
        raise
    except Exception as exc:
        unset = isinstance(exc, AttributeError) and exc.name == name
        reason = "is not set" if unset else f"cannot be read: {_shown(exc)}"
        raise NotStorable(f"{entry.name}: the field {name!r} {reason}") from exc


def says_changed(exc: Exception) -> bool:
    """Whether Python found a container changed while something walked over it."""
    return isinstance(exc, RuntimeError) and "during iteration" in str(exc)


def _shown(exc: Exception) -> str:
    return f"{type(exc).__qualname__}: {exc}"


def put_together(entry: Entry, fields: Fields, fields_set: list[str] | None) -> Any:
    """Build an object from its fields, which become its own."""
    if entry.shape == "model":
        return build_model(entry, fields, fields_set)
    plan = record_plan_of(entry)
    complete = fields if list(fields) == plan.names else _complete(entry, plan, fields)
    try:
        return _build(entry, plan, complete)
    except TypeError as exc:  # Such as an abstract class.
        raise ClassChanged(f"{entry.name} does not take its stored fields: {exc}") from exc


def _complete(entry: Entry, plan: RecordPlan, fields: Fields) -> Fields:
    unknown = fields.keys() - set(plan.names)
    missing = [name for name in plan.names if name not in fields and name not in plan.defaults]
    if unknown or missing:
        raise changed(entry, unknown, missing)
    return {name: fields[name] if name in fields else plan.defaults[name]() for name in plan.names}


def _build(entry: Entry, plan: RecordPlan, fields: Fields) -> Any:
    cls: Any = entry.cls
    if entry.shape == "namedtuple":
        return tuple.__new__(cls, fields.values())
    if entry.shape == "struct":
        return cls(**fields)  # In C: a Struct with code of its own is not declared like this.
    built: Any = _new(cls)
    if plan.caches_hash:
        fields = {**fields, CACHED_HASH: None}
    for name in fields.keys() & plan.slots.keys():
        plan.slots[name].__set__(built, fields.pop(name))
    if plan.has_dict:
        _set(built, "__dict__", fields)
    return built


# Members of enums.


def member_name(entry: Entry, value: Any) -> str | int:
    """What is stored of a member: its name, or the bits of a flag; raises NotStorable."""
    if entry.shape == "flag":
        bits = _get(value, "_value_")
        if type(bits) is not int or bits & ~_named_bits(entry):
            raise NotStorable(f"{entry.name}: no member stands for some bits of {bits!r}")
        return bits
    name = _get(value, "_name_")
    if vars_of(entry.cls)["_member_map_"].get(name) is not value:
        raise NotStorable(f"{entry.name} has no member of the name {name!r} like this one")
    return str(name)


def member_of(entry: Entry, stored: Any) -> Any:
    """The member that was stored so; raises ClassChanged."""
    own = vars_of(entry.cls)
    found = None
    if entry.shape == "enum" and type(stored) is str:
        found = own["_member_map_"].get(stored)
    elif entry.shape == "flag" and type(stored) is int:
        found = own["_value2member_map_"].get(stored)
        if found is None and not stored & ~_named_bits(entry):
            found = own["_value2member_map_"].setdefault(stored, _combined(entry, stored))
    if found is None:
        raise ClassChanged(
            f"{entry.name} no longer has the member {stored!r}; raise its version and give "
            f"register migrations={{{entry.version}: function}}"
        )
    return found


def _named_bits(entry: Entry) -> int:
    bits = 0
    for member in vars_of(entry.cls)["_member_map_"].values():
        bits |= _get(member, "_value_")
    return bits


def _combined(entry: Entry, bits: int) -> Any:
    """A flag of several members, as `enum` makes it, but without asking the class."""
    names, said = [], 0
    for name, member in vars_of(entry.cls)["_member_map_"].items():
        own = _get(member, "_value_")
        if own and own & (own - 1) == 0 and own & bits:
            names.append(name)
            said |= own
    for name, member in vars_of(entry.cls)["_member_map_"].items():
        own = _get(member, "_value_")
        if own & ~said and own & bits == own:
            names.append(name)
    kind = inherited(entry.cls, "_member_type_")
    made = _new(entry.cls) if kind is object else kind.__new__(entry.cls, bits)
    _get(made, "__dict__").update(_value_=bits, _name_="|".join(names) or None)
    return made


# Keys of dicts and members of sets.

_SAFE_KEYS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


def unsafe_key(registry: Registry, keys: Iterable[Any]) -> str | None:
    """Why some of these values cannot be keys: hashing them would run code of a class."""
    for key in keys:
        cls: Any = type(key)
        if cls in _SAFE_KEYS:
            continue
        reason = None
        if cls is tuple or cls is frozenset:
            reason = unsafe_key(registry, key)
        elif atom_of(cls) is None:
            entry = registry.of(cls)
            # What has no entry was made by code that the program trusts, or runs none.
            if entry is not None and entry.shape != "custom":
                reason = entry.why_no_key()
                if reason is not None:
                    return f"{entry.name} cannot be a key or a member of a set: {reason}, {_WHY}"
                reason = unsafe_key(registry, _held(entry, key))
        if reason is not None:
            return reason
    return None


_WHY: Final = (
    "which would run whenever it is read; give register encode= and decode=, or store a key "
    "that is made of its fields"
)


def _held(entry: Entry, value: Any) -> list[Any]:
    if entry.shape in ("enum", "flag"):
        return []
    try:
        return list(take_apart(entry, value)[0].values())
    except NotStorable:
        return []  # It is refused for that.
