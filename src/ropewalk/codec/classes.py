"""Which classes a stored name may lead to, decided without running any of their code.

Stored bytes may come from anybody. So a class is looked up in dictionaries and judged by
the entries in its own and its bases' dictionaries: no import, no `getattr`, no
`isinstance`, no call. The descriptors of `type` and of
`ModuleType` are used directly, because a metaclass or a module may redefine everything
else.

`find_class` says what a stored name stands for, `why_not_plain` what keeps a class from
coming back without a declaration, `why_not_rebuilt` what keeps even a declared class from
coming back without a `decode=` of its own, and `why_no_key` what keeps its objects from
being the keys of a dict or the members of a set.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterator
from types import (
    BuiltinMethodType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final, Literal, Protocol, TypeAlias

Shape: TypeAlias = Literal[
    "dataclass", "attrs", "namedtuple", "model", "struct", "enum", "flag", "custom"
]

# What type and ModuleType themselves say, whatever a metaclass or a module says.
vars_of: Final[Callable[[Any], Any]] = type.__dict__["__dict__"].__get__
mro_of: Final[Callable[[Any], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
_qualname_of: Final[Callable[[Any], str]] = type.__dict__["__qualname__"].__get__
_module_of: Final[Callable[[Any], Any]] = type.__dict__["__module__"].__get__
_flags_of: Final[Callable[[Any], int]] = type.__dict__["__flags__"].__get__
_space_of: Final[Callable[[Any], dict[str, Any]]] = vars(ModuleType)["__dict__"].__get__

LONGEST_NAME: Final = 256
_HEAP_TYPE: Final = 1 << 9
_MAINS: Final = ("__main__", "__mp_main__")
MODEL_SLOTS: Final = (
    "__dict__",
    "__pydantic_fields_set__",
    "__pydantic_extra__",
    "__pydantic_private__",
)
"""All that a pydantic model holds."""
CACHED_HASH: Final = "_attrs_cached_hash"


# Names, and the classes that they lead to.


def default_name(cls: type) -> str:
    """The name under which a class is stored unless another was given."""
    module = _module_of(cls)
    if type(module) is str and module in _MAINS:
        module = main_name()
    return f"{module}.{_qualname_of(cls)}"


def main_name() -> str:
    """The name that the module of the running program has when another one imports it."""
    space = space_named("__main__") or {}
    spec = space.get("__spec__")
    if spec is not None and spec.name not in _MAINS:
        return str(spec.name)
    file = space.get("__file__")
    if type(file) is not str:
        return "__main__"
    stem = file.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return stem if stem.isidentifier() else "__main__"


def space_named(module: str) -> dict[str, Any] | None:
    """What stands in a module, if it is loaded and really is one."""
    try:
        return _space_of(sys.modules.get(module))
    except TypeError:
        return None


def find_class(name: str) -> tuple[type | None, str]:
    """The loaded class that bears a name, and its module; else the one that is loaded, or "".

    Each step is an entry of a dictionary: of the module, then of each class on the way.
    """
    steps = name.split(".")
    nearest = ""
    for cut in range(len(steps) - 1, 0, -1):
        prefix = ".".join(steps[:cut])
        for module in (_MAINS[0], prefix) if prefix == main_name() else (prefix,):
            space = space_named(module)
            if space is None:
                continue
            nearest = nearest or module
            found = _walk(space, steps[cut:])
            if found is not None and _bears(found, prefix, ".".join(steps[cut:])):
                return found, module
    return None, nearest


def stands_in(cls: type, module: str, steps: list[str]) -> bool:
    """Whether a class still stands where it was found; it does not once that is reloaded."""
    space = space_named(module)
    if space is None:
        return False
    return (space.get(steps[0]) if len(steps) == 1 else _walk(space, steps)) is cls


def _walk(space: Any, steps: list[str]) -> type | None:
    try:
        for step in steps[:-1]:
            space = vars_of(space[step])
        found = space[steps[-1]]
    except (KeyError, TypeError):
        return None
    return found if any(type(found) is one for one in _metaclasses()) else None


def _bears(cls: type, module: str, qualname: str) -> bool:
    own = _module_of(cls)
    if type(own) is not str or _qualname_of(cls) != qualname:
        return False
    return own == module or (own in _MAINS and module in (*_MAINS, main_name()))


def _metaclasses() -> Iterator[Any]:
    yield from (type, ABCMeta, enum.EnumMeta, type(Protocol))
    for base in (_base_model(), _struct()):
        if base is not None:
            yield type(base)


def _base_model() -> Any:
    return (space_named("pydantic.main") or {}).get("BaseModel")


def _struct() -> Any:
    return (space_named("msgspec") or {}).get("Struct")


# Marks: what kind of class one is, and the fields that it declares.


def is_native(cls: type) -> bool:
    """Whether a class is no Python class, and so no data class."""
    return not _flags_of(cls) & _HEAP_TYPE


def shape_of(cls: type) -> Shape | None:
    """What kind of data class a class is, by itself or by inheritance."""
    return next(filter(None, (_marked_as(base) for base in mro_of(cls))), None)


def _marked_as(cls: Any) -> Shape | None:
    """What kind of data class a class says that it is, not its bases."""
    own, kind = vars_of(cls), mro_of(type(cls))
    if any(one is enum.EnumMeta for one in kind):
        flag = any(base is enum.Flag for base in mro_of(cls))
        return None if own.get("_member_map_") is None else "flag" if flag else "enum"
    model, struct = _base_model(), _struct()
    if model is not None and any(one is type(model) for one in kind):
        return None if cls is model else "model"
    if struct is not None and any(one is type(struct) for one in kind):
        return None if cls is struct else "struct"
    if type(own.get("__attrs_attrs__")) is not type(None):
        return "attrs"
    if type(own.get("__dataclass_fields__")) is dict:
        return "dataclass"
    return "namedtuple" if "_fields" in own and tuple in mro_of(cls) else None


def inherited(cls: type, name: str) -> Any:
    """What a class has under a name, itself or from a base; None if nothing."""
    for base in mro_of(cls):
        if name in vars_of(base):
            return vars_of(base)[name]
    return None


def fields_of(cls: type, shape: Shape) -> list[str]:
    """The names of the fields of a class, in their order."""
    if shape == "dataclass":
        declared = inherited(cls, "__dataclass_fields__")
        real = dataclasses._FIELD  # type: ignore[attr-defined]
        return [name for name, field in declared.items() if field._field_type is real]
    if shape == "attrs":
        return [field.name for field in inherited(cls, "__attrs_attrs__")]
    if shape == "namedtuple":
        return list(inherited(cls, "_fields"))
    if shape == "model":
        return list(vars_of(cls)["__pydantic_fields__"])
    if shape == "struct":
        return list(struct_part(cls, "__struct_fields__"))
    return []


def struct_part(cls: type, name: str) -> Any:
    """What msgspec keeps of a Struct beside its dictionary."""
    return vars_of(type(_struct()))[name].__get__(cls)


# Rules.


def why_not_plain(cls: type, shape: Shape | None) -> str | None:
    """Why a class does not come back by default; None if it does."""
    if shape is None or _marked_as(cls) != shape:
        base = "" if shape is None else " itself, although a base is one"
        return f"it is no dataclass, attrs class, NamedTuple, Enum, pydantic model or Struct{base}"
    name = default_name(cls)
    if not all(step.isidentifier() for step in name.split(".")):
        return "it is made inside a function, or is generic with parameters"
    meta = vars_of(cls).get("__pydantic_generic_metadata__") if shape == "model" else None
    if meta is not None and meta["args"]:
        return "it is generic with parameters"
    if len(name) > LONGEST_NAME:
        return f"its name has more than {LONGEST_NAME} characters"
    if find_class(name)[0] is not cls:
        return (
            f"its name {name} does not lead to it, but to another class or to none; if it was "
            "defined again, make the object again"
        )
    strange = _why_strange_metaclass(cls) or _why_strange_base(cls, shape)
    return strange or why_not_rebuilt(cls, shape)


def why_not_rebuilt(cls: type, shape: Shape) -> str | None:
    """Why objects of a class cannot be made without running code of it; None if they can."""
    if shape == "flag" and inherited(cls, "_member_type_") not in (object, int):
        return "its members are of a class of its own, which runs when they are combined"
    if shape in ("enum", "flag"):
        return None  # Its members are there already.
    if inherited(cls, "__del__") is not None:
        return "it has __del__"
    if shape == "struct" and inherited(cls, "__post_init__") is not None:
        return "it has __post_init__, which msgspec runs whenever a Struct is made"
    strange = _why_strange_metaclass(cls)
    if strange is not None:
        return strange
    return _why_strange_base(cls, shape) or _why_strange_fields(cls, shape)


def _why_strange_metaclass(cls: type) -> str | None:
    if any(type(cls) is one for one in _metaclasses()):
        return None
    return f"it has a metaclass of its own, {default_name(type(cls))}"


def _why_strange_fields(cls: type, shape: Shape) -> str | None:
    fields = [] if shape == "namedtuple" else fields_of(cls, shape)
    for base in mro_of(cls):
        own = vars_of(base)
        for name in (*fields, "__dict__"):
            if name in own and _is_data_descriptor(own[name]):
                return f"its field {name} is a property or another descriptor"
    kept = [inherited(cls, one) for one in MODEL_SLOTS]  # A RootModel has None for some.
    if shape == "model" and not all(one is None or _is_slot(one) for one in kept):
        return "it redefines what pydantic keeps its values in"
    slots: dict[str, Any] = {}
    for base in mro_of(cls):
        for name, found in vars_of(base).items():
            if type(found) is MemberDescriptorType and slots.setdefault(name, found) is not found:
                return f"its slot {name} hides that of a base"
    unseen = sorted(slots.keys() - set(MODEL_SLOTS)) if shape == "model" else []
    if unseen:
        return f"what its slots {', '.join(unseen)} hold would be lost"
    if shape in ("dataclass", "attrs") and not _has_dict(cls):
        unplaced = [one for one in fields if type(inherited(cls, one)) is not MemberDescriptorType]
        if unplaced:
            return f"its objects have no place for {', '.join(unplaced)}"
    return None


def _why_strange_base(cls: type, shape: Shape) -> str | None:
    allowed: tuple[Any, ...] = (object,)
    if shape == "namedtuple":
        allowed = (object, tuple)
    elif shape in ("enum", "flag"):
        allowed = (object, int, str, bytes, float)
    elif shape == "struct":
        allowed = mro_of(_struct())
    for base in mro_of(cls):
        native = type(vars_of(base).get("__new__")) is BuiltinMethodType
        if (native or not _flags_of(base) & _HEAP_TYPE) and base not in allowed:
            return f"it derives from {_qualname_of(base)}, whose contents are not fields"
    return None


def _is_slot(found: Any) -> bool:
    return type(found) is MemberDescriptorType or type(found) is GetSetDescriptorType


def _has_dict(cls: type) -> bool:
    return type(inherited(cls, "__dict__")) is GetSetDescriptorType


def _is_data_descriptor(found: Any) -> bool:
    if _is_slot(found):
        return False
    spaces = [vars_of(base) for base in mro_of(type(found))]
    return any("__set__" in space or "__delete__" in space for space in spaces)


def why_no_key(cls: type, shape: Shape) -> str | None:
    """Why objects of a class may not be hashed while stored bytes are read; None if they may."""
    for name in ("__getattribute__", "__class__"):
        if _flags_of(owner_of(cls, name)) & _HEAP_TYPE:
            return f"it has its own {name}"
    for name in ("__hash__", "__eq__"):
        if not _is_generated(owner_of(cls, name), name):
            return f"it has its own {name}"
    if shape == "attrs":
        for field in inherited(cls, "__attrs_attrs__"):
            if field.eq_key is not None:
                return f"its field {field.name} is compared by a function"
    return None


def owner_of(cls: type, name: str) -> Any:
    """The class among the bases of another, or itself, that defines a name."""
    return next((base for base in mro_of(cls) if name in vars_of(base)), object)


def _is_generated(owner: Any, name: str) -> bool:
    found = vars_of(owner)[name]
    if found is None or type(found) is WrapperDescriptorType:
        return True
    if type(found) is not FunctionType:
        return False
    if owner in (enum.Enum, enum.Flag, _base_model()):
        return True
    if _is_by_attrs(found):
        return True
    code = found.__code__
    made = f"__create_fn__.<locals>.{name}"
    if code.co_filename == "<string>" and code.co_qualname == made:
        return True  # By dataclasses.
    return found.__globals__ is space_named("pydantic._internal._model_construction")


# Fields that are not stored.

_FACTORIES: Final = (list, dict, set)
_SIMPLE: Final = (type(None), bool, int, float, complex, str, bytes)


def simple_default(default: Any, factory: Any, absent: Any) -> Callable[[], Any] | None:
    """What gives a field its default without running code of the class, if anything does."""
    if factory is not None and factory is not absent:
        return next((one for one in _FACTORIES if factory is one), None)
    if default is absent:
        return None
    empty = next((one for one in _FACTORIES if type(default) is one), None)
    if empty is not None:
        return None if default else empty
    return (lambda: default) if _is_constant(default) else None


def _is_constant(value: Any) -> bool:
    from ropewalk.codec.atoms import atom_of

    cls = type(value)
    if cls in (tuple, frozenset):
        return all(map(_is_constant, value))
    if any(one is enum.EnumMeta for one in mro_of(type(cls))):
        return True
    return cls in _SIMPLE or (cls is not bytearray and atom_of(cls) is not None)


def is_computed(cls: type, name: str) -> bool:
    """Whether what an object holds under a name is a cached property that was asked for."""
    if type(inherited(cls, name)) is functools.cached_property:
        return True
    # In a class with slots, attrs keeps it in one.
    own = vars_of(owner_of(cls, name))
    return type(own.get(name)) is MemberDescriptorType and _is_by_attrs(own.get("__getattr__"))


def caches_hash(cls: type) -> bool:
    """Whether the objects of an attrs class remember their hash."""
    hashing = inherited(cls, "__hash__")
    return _is_by_attrs(hashing) and CACHED_HASH in hashing.__code__.co_names


def _is_by_attrs(found: Any) -> bool:
    if type(found) is not FunctionType:
        return False
    return found.__code__.co_filename.startswith("<attrs generated ")


def why_unknown(name: str) -> str:
    """Why a stored name leads to no class that comes back by default, and what to do."""
    found, module = find_class(name)
    if found is not None:
        shape = shape_of(found)
        reason = why_not_plain(found, shape) or "another class was declared under its name"
        return f"which is not plain data: {reason}"
    likely = _module_in(name)
    if module and not _is_package_of(module, likely):
        return f"but {module}, which is loaded, has no class of this name"
    return f"which this program has not loaded: import {likely} before you read"


def _is_package_of(module: str, other: str) -> bool:
    """Whether another module is, by its name, inside of a loaded package."""
    return other.startswith(f"{module}.") and "__path__" in (space_named(module) or ())


def _module_in(name: str) -> str:
    """The module that a name most likely begins with: classes begin with a capital letter."""
    steps = name.split(".")
    if not all(step.isidentifier() for step in steps):
        return "the module that defines it"
    upper = [at for at, step in enumerate(steps) if at and step[:1].isupper()]
    return ".".join(steps[: upper[0]] if upper else steps[:-1] or steps)
