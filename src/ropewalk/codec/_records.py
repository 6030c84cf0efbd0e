"""Objects of declared classes as fields by name, and back.

Taking apart refuses what fields do not show. Putting together never calls a
constructor where the class allows that, so the object is as it was.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from types import MemberDescriptorType
from typing import Any, Final

from ropewalk.codec._models import Fields, build_model, changed, take_model_apart
from ropewalk.codec._registry import Entry
from ropewalk.errors import ChangedMeanwhile, ClassChanged, NotStorable

_ATTEMPTS: Final = 8
"""How often what others keep changing is read again."""


def take_apart(entry: Entry, value: Any) -> tuple[Fields, list[str] | None]:
    """The fields of an object, and for a pydantic model which of them were set.

    Raises NotStorable, also for whatever the class itself raises meanwhile.
    """
    try:
        return _take_apart(entry, value)
    except (NotStorable, ChangedMeanwhile, RecursionError, MemoryError):
        raise
    except Exception as exc:
        if says_changed(exc):
            raise ChangedMeanwhile from exc
        raise NotStorable(f"{entry.name}: its fields cannot be read: {_shown(exc)}") from exc


def _take_apart(entry: Entry, value: Any) -> tuple[Fields, list[str] | None]:
    if entry.shape == "namedtuple":
        return _tuple_fields(entry, value), None
    if entry.shape == "model":
        return take_model_apart(entry, value)
    names = (
        value.__struct_fields__
        if entry.shape == "struct"
        else [field.name for field in dataclasses.fields(value)]
    )
    fields = _attributes(entry, value, names)
    _refuse_hidden(entry, value, fields)
    return fields, None


def _attributes(entry: Entry, value: Any, names: Iterable[str]) -> Fields:
    """The fields as they were at one moment: those of a `__dict__` are copied at once."""
    names = list(names)
    held = getattr(value, "__dict__", None)
    fields = {} if held is None else held.copy()
    if fields.keys() >= set(names) and not _has_descriptor(type(value), fields):
        return {name: fields[name] for name in names}
    # What is in slots, or behind a descriptor, can only be read one by one. A descriptor may
    # make something new each time, a slot gives what is there.
    slots = [name for name in names if name not in fields and _is_slot(type(value), name)]
    found = _read(entry, value, names)
    for _ in range(_ATTEMPTS):
        again = _read(entry, value, names)
        if all(found[name] is again[name] for name in slots):
            return again
        found = again
    raise ChangedMeanwhile


def _is_slot(cls: type, name: str) -> bool:
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return type(found) is MemberDescriptorType


def _has_descriptor(cls: type, names: Fields) -> bool:
    """Whether something stands before one of the names in a `__dict__`."""
    for base in cls.__mro__[:-1]:
        for name in vars(base).keys() & names.keys():
            if hasattr(type(vars(base)[name]), "__set__"):
                return True
    return False


def _read(entry: Entry, value: Any, names: Iterable[str]) -> Fields:
    fields: Fields = {}
    name = ""
    try:
        for name in names:
            fields[name] = getattr(value, name)
    except (RecursionError, MemoryError):
        raise
    except Exception as exc:
        unset = isinstance(exc, AttributeError) and exc.name == name
        reason = "is not set" if unset else f"cannot be read: {_shown(exc)}"
        raise NotStorable(f"{entry.name}: the field {name!r} {reason}") from exc
    return fields


def says_changed(exc: Exception) -> bool:
    """Whether Python found a container changed while something walked over it."""
    return isinstance(exc, RuntimeError) and "during iteration" in str(exc)


def _shown(exc: Exception) -> str:
    return f"{type(exc).__qualname__}: {exc}"


def _tuple_fields(entry: Entry, value: Any) -> Fields:
    if len(value) != len(value._fields):
        raise NotStorable(f"{entry.name}: it has {len(value)} items for {len(value._fields)} names")
    fields = dict(zip(value._fields, value, strict=True))
    _refuse_hidden(entry, value, fields)
    return fields


def _refuse_hidden(entry: Entry, value: Any, fields: Fields) -> None:
    hidden = set(getattr(value, "__dict__", ())) - fields.keys()
    for base in type(value).__mro__:
        slots = {name for name, slot in vars(base).items() if type(slot) is MemberDescriptorType}
        hidden |= {name for name in slots - fields.keys() if hasattr(value, name)}
    if hidden:
        raise NotStorable(
            f"{entry.name}: {sorted(hidden)} are set but are not fields, so they would be lost; "
            "declare them as fields, or give register encode= and decode="
        )


def put_together(entry: Entry, fields: Fields, fields_set: list[str] | None) -> Any:
    """Build an object from its fields, which become its own."""
    if entry.shape == "model":
        return build_model(entry, fields, fields_set)
    names, defaults = _expected(entry)
    complete = _complete(entry, fields, names, defaults)
    if entry.shape == "namedtuple":
        return tuple.__new__(entry.cls, complete.values())
    if entry.shape == "struct":
        return _build_struct(entry, complete)
    built: Any = object.__new__(entry.cls)
    for name, value in complete.items():
        object.__setattr__(built, name, value)
    return built


def _expected(entry: Entry) -> tuple[list[str], dict[str, Any]]:
    """Names of all fields, and for those with a default a function that makes it."""
    cls: Any = entry.cls
    if entry.shape == "namedtuple":
        made = cls._field_defaults
        return list(cls._fields), {name: _constant(value) for name, value in made.items()}
    if entry.shape == "struct":
        return list(cls.__struct_fields__), _struct_defaults(cls)
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = _constant(field.default)
    return [field.name for field in dataclasses.fields(cls)], defaults


def _struct_defaults(cls: Any) -> dict[str, Any]:
    structs = sys.modules["msgspec"].structs
    no_default = sys.modules["msgspec"].NODEFAULT
    defaults: dict[str, Any] = {}
    for field in structs.fields(cls):
        if field.default_factory is not no_default:
            defaults[field.name] = field.default_factory
        elif field.default is not no_default:
            defaults[field.name] = _constant(field.default)
    return defaults


def _constant(value: Any) -> Any:
    return lambda: value


def _complete(
    entry: Entry, fields: Fields, names: list[str], defaults: dict[str, Any]
) -> dict[str, Any]:
    unknown = fields.keys() - set(names)
    missing = [name for name in names if name not in fields and name not in defaults]
    if unknown or missing:
        raise changed(entry, unknown, missing)
    return {name: fields[name] if name in fields else defaults[name]() for name in names}


def _build_struct(entry: Entry, fields: dict[str, Any]) -> Any:
    cls: Any = entry.cls
    try:
        built = cls(**fields)
    except Exception as exc:
        raise ClassChanged(f"{entry.name} refuses its stored fields: {exc}") from exc
    if hasattr(cls, "__post_init__"):
        for name, value in fields.items():
            sys.modules["msgspec"].structs.force_setattr(built, name, value)
    return built
