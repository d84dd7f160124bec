"""Records to JSON values and back, by the records' own type hints. Strict both ways; knows no file and no version."""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
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
    try:
        return cast(T, _reader(cast(Hashable, kind))(value))
    except _Misfit as misfit:
        place = f"{path}{misfit.place}".removeprefix(".")
        raise ValueError(f"{_where(place)}: {misfit}") from misfit


class _Misfit(Exception):
    """What is wrong with a value. Its place is put together on the way out, since a run holds very many right ones."""

    place = ""

    def inside(self, step: str) -> _Misfit:
        """The same, seen from one level further out."""
        self.place = step + self.place
        return self


@cache
def _reader(hint: Hashable) -> Callable[[object], object]:
    """What reads values of one type; made once, since a run has as many values as tokens."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _run_reader(arguments[0]) if arguments[-1] is Ellipsis else _tuple_reader(arguments)
    if origin in (UnionType, Union):
        return _optional_reader(arguments)
    if isinstance(hint, type) and is_dataclass(hint):
        return _record_reader(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _enum_reader(hint)
    if hint in _PLAIN:
        return partial(_read_plain, hint)
    raise TypeError(f"a record cannot hold {hint!r}")


def _record_reader(kind: type) -> Callable[[object], object]:
    hints = typing.get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _wrong("an object", value)
        if value.keys() != readers.keys():
            raise _misnamed(value, readers)
        key, arguments = "", {}
        try:
            for key, reader in readers.items():
                arguments[key] = reader(value[key])
        except _Misfit as misfit:
            misfit.inside(f".{key}")
            raise
        try:
            return kind(**arguments)
        except ValueError as error:
            raise _Misfit(str(error)) from error

    return read


def _misnamed(value: dict[str, object], readers: Iterable[str]) -> _Misfit:
    for key in value:
        if key not in readers:
            return _Misfit("unknown key").inside(f".{key}")
    return _Misfit("missing").inside(f".{next(key for key in readers if key not in value)}")


def _run_reader(hint: object) -> Callable[[object], object]:
    """Of a tuple of any length."""
    reader = _reader(hint)

    def read(value: object) -> object:
        if not isinstance(value, list):
            raise _wrong("a list", value)
        return tuple(value) if _are_plain(hint, value) else _read_all(itertools.repeat(reader), value)

    return read


def _tuple_reader(hints: tuple[object, ...]) -> Callable[[object], object]:
    readers = [_reader(hint) for hint in hints]

    def read(value: object) -> object:
        if not isinstance(value, list):
            raise _wrong("a list", value)
        if len(value) != len(readers):
            raise _Misfit(f"expected {len(readers)} items, got {len(value)}")
        return _read_all(readers, value)

    return read


def _read_all(readers: Iterable[Callable[[object], object]], values: list[object]) -> tuple[object, ...]:
    found: list[object] = []
    try:
        for reader, value in zip(readers, values, strict=False):
            found.append(reader(value))
    except _Misfit as misfit:
        misfit.inside(f"[{len(found)}]")
        raise
    return tuple(found)


def _are_plain(hint: object, values: list[object]) -> bool:
    """Whether values are right as they are, told at once: step times and counts are most of a run."""
    plain = hint in (float, int, str) and {hint}.issuperset(map(type, values))
    return plain and (hint is not float or all(map(math.isfinite, cast(list[float], values))))


def _optional_reader(options: tuple[object, ...]) -> Callable[[object], object]:
    kinds = [option for option in options if option is not NoneType]
    if len(kinds) != 1 or len(kinds) == len(options):
        raise TypeError("of all unions, a record may hold only an optional value")
    reader = _reader(kinds[0])
    return lambda value: None if value is None else reader(value)


def _enum_reader(kind: type[StrEnum]) -> Callable[[object], object]:
    members = {member.value: member for member in kind}

    def read(value: object) -> object:
        if not isinstance(value, str):
            raise _wrong("a string", value)
        if value not in members:
            raise _Misfit(f"expected one of {', '.join(kind)}, got {value!r}")
        return members[value]

    return read


def _read_plain(hint: type, value: object) -> object:
    if type(value) is hint and hint is not float:
        return value
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        number = _as_float(value)
        if not math.isfinite(number):
            raise _Misfit(f"expected a finite number, got {number}")
        return number
    raise _wrong(_PLAIN[hint], value)


_PLAIN = {float: "a number", int: "an integer", str: "a string", bool: "true or false"}


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _finite(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{_where(path)}: expected a finite number, got {value}")
    return value


def _wrong(expected: str, value: object) -> _Misfit:
    return _Misfit(f"expected {expected}, got {_named(type(value))}")


def _named(kind: type) -> str:
    """The JSON word for a Python type, or the type's name."""
    words = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "an integer"}
    return {**words, float: "a number", NoneType: "null"}.get(kind, kind.__name__)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _where(path: str) -> str:
    return path or "top level"
