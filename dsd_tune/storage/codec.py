"""Records to JSON values and back, by the records' own type hints. Strict both ways; knows no file and no version."""

from __future__ import annotations

import math
import typing
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import TypeVar, Union, cast

T = TypeVar("T")


def encode(value: object, path: str = "") -> object:
    """The JSON value of a record, or of anything a record may hold.

    Raises:
        ValueError: a number that is not finite, or a type that no record may hold; names the path.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name), _join(path, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float):
        return float(_finite(value, path))
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"{_where(path)}: a record cannot hold {_named(type(value))}")


def decode(kind: type[T], value: object, path: str = "") -> T:
    """The record of class `kind` that `encode` turned into `value`.

    Every field must be there, defaults included, and nothing else. An int is accepted for a float; a bool is
    no int.

    Raises:
        ValueError: wrong type, missing or unknown key, or refused by the record; names the path.
    """
    return cast(T, _decode(kind, value, path))


def _decode(hint: object, value: object, path: str) -> object:
    origin = typing.get_origin(hint)
    if origin is tuple:
        return _decode_tuple(typing.get_args(hint), value, path)
    if origin in (UnionType, Union):
        return _decode_optional(typing.get_args(hint), value, path)
    if isinstance(hint, type) and is_dataclass(hint):
        return _decode_record(hint, value, path)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _decode_enum(hint, value, path)
    return _decode_scalar(hint, value, path)


def _decode_record(kind: type, value: object, path: str) -> object:
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value)
    hints = _hints(kind)
    for key in value:
        if key not in hints:
            raise ValueError(f"{_where(_join(path, str(key)))}: unknown key")
    for key in hints:
        if key not in value:
            raise ValueError(f"{_where(_join(path, key))}: missing")
    arguments = {key: _decode(hint, value[key], _join(path, key)) for key, hint in hints.items()}
    try:
        return kind(**arguments)
    except ValueError as error:
        raise ValueError(f"{_where(path)}: {error}") from error


def _decode_tuple(items: tuple[object, ...], value: object, path: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise _wrong(path, "a list", value)
    if items[-1] is Ellipsis:
        if _are_plain(items[0], value):
            return tuple(value)
        items = items[:1] * len(value)
    if len(items) != len(value):
        raise ValueError(f"{_where(path)}: expected {len(items)} items, got {len(value)}")
    return tuple(_decode(hint, item, f"{path}[{i}]") for i, (hint, item) in enumerate(zip(items, value, strict=True)))


def _are_plain(hint: object, values: list[object]) -> bool:
    """Whether values are right as they are, told at once: step times and counts are most of a run."""
    plain = hint in (float, int, str) and {hint}.issuperset(map(type, values))
    return plain and (hint is not float or all(map(math.isfinite, cast(list[float], values))))


def _decode_optional(options: tuple[object, ...], value: object, path: str) -> object:
    kinds = [option for option in options if option is not NoneType]
    if len(kinds) != 1 or len(kinds) == len(options):
        raise TypeError(f"{_where(path)}: of all unions, a record may hold only an optional value")
    return None if value is None else _decode(kinds[0], value, path)


def _decode_enum(kind: type[StrEnum], value: object, path: str) -> StrEnum:
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    if value not in {member.value for member in kind}:
        raise ValueError(f"{_where(path)}: expected one of {', '.join(kind)}, got {value!r}")
    return kind(value)


def _decode_scalar(hint: object, value: object, path: str) -> object:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(_as_float(value), path)
    if hint in (int, str, bool) and type(value) is hint:
        return value
    if hint not in (float, int, str, bool):
        raise TypeError(f"{_where(path)}: a record cannot hold {hint!r}")
    raise _wrong(path, {float: "a number", int: "an integer", str: "a string", bool: "true or false"}[hint], value)


@cache
def _hints(kind: type) -> dict[str, object]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _finite(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{_where(path)}: expected a finite number, got {value}")
    return value


def _wrong(path: str, expected: str, value: object) -> ValueError:
    return ValueError(f"{_where(path)}: expected {expected}, got {_named(type(value))}")


def _named(kind: type) -> str:
    """The JSON word for a Python type, or the type's name."""
    words = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "an integer"}
    return {**words, float: "a number", NoneType: "null"}.get(kind, kind.__name__)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _where(path: str) -> str:
    return path or "top level"
