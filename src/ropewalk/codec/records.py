"""Objects of data classes as fields by name, and back.

Taking apart refuses what fields do not show. Putting together runs no code of the class: an
object is made by `object.__new__` or `tuple.__new__` (a Struct by msgspec), and its values go
into its `__dict__` or through the descriptors of its slots. What depends on the class alone is
found once, because messages are objects and there are many of them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter, is_
from types import MemberDescriptorType
from typing import Any, Final

from ropewalk.codec.atoms import atom_of
from ropewalk.codec.classes import (
    CACHED_HASH,
    MODEL_SLOTS,
    Shape,
    caches_hash,
    default_name,
    fields_of,
    inherited,
    is_computed,
    mro_of,
    simple_default,
    struct_part,
    vars_of,
)
from ropewalk.codec.msgpack import ATTEMPTS
from ropewalk.codec.registry import Entry, Registry
from ropewalk.errors import ChangedMeanwhile, ClassChanged, NotStorable

_new: Final = object.__new__
_get: Final = object.__getattribute__
_set: Final = object.__setattr__

Fields = dict[str, Any]
EXTRA: Final = "+"
"""Stands before the name of a pydantic model's extra value."""

_MANY: Final = 1024

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
        plan = _make_model_plan(cls)
        object.__setattr__(entry, "plan", plan)
    return plan


def _make_model_plan(cls: Any) -> ModelPlan:
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
    if plan.is_root:  # It has no extra and no private values.
        built: Any = _new(entry.cls)
        _set(built, "__dict__", ordered)
        _set(built, "__pydantic_fields_set__", named)
        return built
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


_STRUCT_HASH: Final = "__msgspec_cached_hash__"
"""The slot in which a Struct caches its hash; msgspec fills it again."""


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
    cls, names = entry.cls, fields_of(entry.cls, entry.shape)
    held: dict[str, Any] = {}
    for base in reversed(mro_of(cls)):
        held.update(vars_of(base))
    slots = {name: one for name, one in held.items() if type(one) is MemberDescriptorType}
    if entry.shape == "struct":
        slots.pop(_STRUCT_HASH, None)
    others = held.keys() - set(names)
    given = _given_defaults(cls, entry.shape)
    defaults = {name: simple_default(*one) for name, one in given.items()}
    return RecordPlan(
        names=names,
        defaults={name: one for name, one in defaults.items() if one is not None},
        slots=slots,
        has_dict="__dict__" in held,
        caches_hash=entry.shape == "attrs" and caches_hash(cls),
        lazy=frozenset(name for name in others if is_computed(cls, name)),
        only_dict=not slots and held.get("__getattribute__") is object.__getattribute__,
    )


def _given_defaults(cls: Any, shape: Shape) -> dict[str, tuple[Any, Any, Any]]:
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
    names = struct_part(cls, "__struct_fields__")
    values = struct_part(cls, "__struct_defaults__")
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
