"""KVRecord: named integers, byte strings, integer arrays and nested records in one binary file format.

::

    from nnk import kvrecord

    data = kvrecord.dumps({"n": 7, "s": b"hi", "r": {"a": [1, 258]}})
    record = kvrecord.loads(data)
    record["r"]["a"]        # (1, 258)

The byte layout is described in docs/formats/kvrecord-v2.md. All errors of :func:`loads` and :func:`dumps` are
:class:`~nnk.errors.FormatError`; a value of a wrong Python type is a ``TypeError``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from nnk._fast.kvrecord import RecordTable, encode, encode_v1, parse
from nnk.errors import RecordError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Record", "dumps", "loads"]

Value: TypeAlias = Union[int, bytes, tuple[int, ...], "Record"]

RESERVED_KEY = "kvrec_version"
MAX_NESTING = 32
_UINT, _STR, _UINT_ARRAY, _RECORD = range(4)


class Record(MutableMapping[str, Value]):
    """An ordered mapping from names to values; it behaves like a ``dict``.

    A value is an ``int`` in [0, 2**64), ``bytes`` (a ``str`` is stored as its UTF-8 bytes), a sequence of such
    integers (kept as a ``tuple``), or a nested record (any mapping). Two records are equal if they have the same
    fields with equal values, in any order; a record also equals the ``dict`` that it could be made from. A key that
    is not UTF-8 in the file appears with surrogate escapes and is written back unchanged.

    Examples
    --------
    >>> record = Record(n=7, s="hi")
    >>> record["s"], list(record)
    (b'hi', ['n', 's'])

    Raises
    ------
    RecordError
        When a field is set: if an integer is out of range or the key is the reserved ``kvrec_version``.
    TypeError
        When a field is set: if the key is no ``str`` or the value has another type.
    """

    __slots__ = ("_fields",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, fields: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any) -> None:
        self._fields: dict[str, Value] = {}
        self.update(fields, **more)

    def __getitem__(self, key: str) -> Value:
        return self._fields[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"Expected str as the key of a record, got {type(key).__name__}")
        if key == RESERVED_KEY:
            raise RecordError(f"Expected another key than `{key}`: the format reserves it", field=key)
        self._fields[key] = _value_of(key, value)

    def __delitem__(self, key: str) -> None:
        del self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Record):
            return self._fields == other._fields
        if isinstance(other, Mapping):
            try:
                return self._fields == Record(other)._fields
            except (RecordError, TypeError):
                return False
        return NotImplemented

    def __repr__(self) -> str:
        return f"Record({{{', '.join(f'{key!r}: {_short(value)}' for key, value in self._fields.items())}}})"

    def copy(self) -> Record:
        """Return a record with the same fields; nested records are shared."""
        new = Record()
        new._fields.update(self._fields)
        return new

    __copy__ = copy


def _short(value: Value) -> str:
    """Return the repr of a value, cut where a file's blob would flood the terminal."""
    if isinstance(value, bytes) and len(value) > 64:
        return f"{value[:48]!r}... ({len(value)} bytes)"
    if isinstance(value, tuple) and len(value) > 16:
        return f"({', '.join(map(str, value[:8]))}, ... ({len(value)} integers))"
    return repr(value)


def _uint_of(key: str, value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(f"Expected an integer in field `{key}`, got bool; write int(value) if 0 or 1 is meant")
    number = operator.index(value)
    if not 0 <= number < 2**64:
        raise RecordError(f"Expected 0 <= value < 2**64 in field `{key}`, got {number}", field=key)
    return number


def _value_of(key: str, value: Any) -> Value:
    """Return ``value`` as one of the four types of the format."""
    if isinstance(value, Record | bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return Record(value)
    if isinstance(value, bool) or not isinstance(value, Iterable):
        try:
            return _uint_of(key, value)
        except TypeError as exc:
            raise TypeError(f"Expected int, bytes, str, a sequence of int or a mapping in field `{key}`, "
                            f"got {type(value).__name__}") from exc
    return tuple([_uint_of(key, item) for item in value])


def _key_bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _fields_of(record: Record, depth: int = 0) -> tuple[tuple[bytes, int, Any], ...]:
    """Return the record as the tuples that the writer takes."""
    if depth > MAX_NESTING:
        raise RecordError(f"Expected records nested at most {MAX_NESTING} deep, got more")
    out: list[tuple[bytes, int, Any]] = []
    for key, value in record._fields.items():
        if isinstance(value, int):
            out.append((_key_bytes(key), _UINT, value))
        elif isinstance(value, bytes):
            out.append((_key_bytes(key), _STR, value))
        elif isinstance(value, tuple):
            out.append((_key_bytes(key), _UINT_ARRAY, value))
        else:
            out.append((_key_bytes(key), _RECORD, _fields_of(value, depth + 1)))
    return tuple(out)


def dumps(record: Mapping[str, Any], *, base: int = 0, version: int = 2) -> bytes:
    """Return ``record`` as bytes.

    Parameters
    ----------
    record : Mapping
        A :class:`Record`, or a mapping that :class:`Record` takes.
    base : int
        Bytes that stand before the record in its file: addresses inside count from the start of the file.
    version : int
        2, or 1 for the old layout, which has no nested records: the writer leaves them out, as the format says.

    Raises
    ------
    RecordError
        If a value is out of range, a key is reserved, or records nest deeper than 32.
    """
    try:
        record = record if isinstance(record, Record) else Record(record)
    except RecursionError as exc:
        raise RecordError(f"Expected records nested at most {MAX_NESTING} deep, got more") from exc
    if version == 1:
        if base:
            raise RecordError("Expected base 0 for version 1, which holds no addresses")
        return encode_v1(_fields_of(record))
    if version != 2:
        raise RecordError(f"Expected version 1 or 2, got {version}")
    if not 0 <= base < 2**63:
        raise RecordError(f"Expected 0 <= base < 2**63, got {base}")
    return encode(_fields_of(record), base)


def _record_of(table: RecordTable) -> Record:
    record = Record()
    for number in range(len(table)):
        kind = table.kind(number)
        value: Value
        if kind == _UINT:
            value = table.uint(number)
        elif kind == _STR:
            value = bytes(table.raw(number))
        elif kind == _UINT_ARRAY:
            value = table.uints(number)
        elif kind == _RECORD and table.version == 2:
            value = _record_of(table.child(number))
        else:
            continue        # a type of a later writer: skipped, as the format says
        record._fields[table.key(number).decode("utf-8", "surrogateescape")] = value
    return record


def loads(data: Buffer, *, base: int = 0, offset: int = 0, trailing: bool = False) -> Record:
    """Read the record at ``data[offset]``, of either version.

    Parameters
    ----------
    data : bytes-like
        The bytes.
    base : int
        Place of ``data[0]`` in its file, in bytes: ``loads(dumps(r, base=8), base=8)`` is ``r``.
    offset : int
        Index of the record's first byte in ``data``: a file with an 8-byte label is read with ``offset=8``.
    trailing : bool
        Whether bytes may follow the record.

    Raises
    ------
    RecordError
        If the bytes are no valid record. ``offset`` counts from ``data[0]``; ``field`` is the key.
    RecordTruncatedError
        If the record passes the end of the data.
    FormatVersionError
        If the record has another version than 1 or 2.
    """
    view = memoryview(data).cast("B")
    for name, number in (("base", base), ("offset", offset)):
        if not 0 <= number < 2**63:
            raise RecordError(f"Expected 0 <= {name} < 2**63, got {number}")
    table = parse(view, base, offset)
    if table.end != len(view) and not trailing:
        raise RecordError(f"KVRecord, byte {table.end}: expected the end of the data, got {len(view) - table.end} more "
                          f"bytes", offset=table.end)
    return _record_of(table)
