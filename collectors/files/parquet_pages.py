"""What a Parquet file says that its pages expand to, without expanding any.

Sources: parquet.thrift of apache/parquet-format, and Thrift's compact protocol
(thrift-compact-protocol.md of apache/thrift). Nothing of what is read is kept, so it takes no
memory, whatever a damaged file says.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO, Final

_MAGIC: Final = b"PAR1"
# The length of the footer and the mark stand last.
_TAIL_BYTES: Final = 8
# Of a table with 30 columns in 1,000 groups of rows the footer has 6 MB.
_LONGEST_FOOTER: Final = 32 << 20
# A page has a megabyte, or 20,000 rows.
_MOST_PAGES: Final = 1 << 20
# Of the compact protocol.
_TRUE, _FALSE, _BYTE, _INTEGERS, _DOUBLE, _BINARY = 1, 2, 3, (4, 5, 6), 7, 8
_LISTS, _MAP, _STRUCT = (9, 10), 11, 12
_LONGEST_VARINT_BITS: Final = 70
# FileMetaData.row_groups, RowGroup.columns, ColumnChunk.meta_data.
_COLUMN_CHUNKS: Final = (4, 1, 3)
# ColumnMetaData.
_COMPRESSED_SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 7, 9, 11
# PageHeader; then num_values and encoding of the two kinds of data page.
_PAGE_EXPANDED, _PAGE_COMPRESSED = 2, 3
_DATA_PAGES: Final = {5: (1, 2), 8: (1, 4)}
# Its strings repeat the beginning of the one before, so a page of it expands without bound.
_DELTA_BYTE_ARRAY: Final = 7


@dataclass(frozen=True)
class Expansion:
    """What the pages say: their bytes in all, and the most values of one column in a row group."""

    size: int
    values: int


def expansion(file: BinaryIO) -> Expansion:
    """What the pages of `file` expand to.

    Raises `ValueError`, `IndexError` or `RecursionError` where it is no Parquet, damaged, or has
    strings whose length its pages do not tell.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(end - _TAIL_BYTES, 0))
    tail = file.read(_TAIL_BYTES)
    footer = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or footer > min(end - _TAIL_BYTES, _LONGEST_FOOTER):
        raise ValueError("no footer")
    file.seek(end - _TAIL_BYTES - footer)
    chunks, pages = _Compact(BytesIO(file.read(footer))), _Compact(file)
    size = most_values = number = 0
    for _ in chunks.structs(_COLUMN_CHUNKS):
        chunk = chunks.numbers()
        at, values = chunk.get(_DICTIONARY_PAGE, chunk[_DATA_PAGE]), 0
        chunk_end = at + chunk[_COMPRESSED_SIZE]
        while at < chunk_end:
            file.seek(at)
            page = _page(pages)
            size += page.expanded
            values += page.values
            at = file.tell() + page.compressed
            number += 1
            if number > _MOST_PAGES:
                raise ValueError("too many pages")
        most_values = max(most_values, values)
    return Expansion(size, most_values)


@dataclass(frozen=True)
class _Page:
    expanded: int
    compressed: int
    values: int


def _page(thrift: "_Compact") -> _Page:
    numbers: dict[int, int] = {}
    values = 0
    for field, kind in thrift.fields():
        if kind in _INTEGERS:
            numbers[field] = thrift.integer()
        elif field in _DATA_PAGES:
            header = thrift.numbers()
            count, encoding = _DATA_PAGES[field]
            values = header[count]
            if header[encoding] == _DELTA_BYTE_ARRAY:
                raise ValueError("strings that repeat the one before")
        else:
            thrift.skip(kind)
    page = _Page(numbers[_PAGE_EXPANDED], numbers[_PAGE_COMPRESSED], values)
    if min(page.expanded, page.compressed, page.values) < 0:
        raise ValueError("a page of less than nothing")
    return page


class _Compact:
    """Thrift's compact protocol, read from a file. Each method reads on from where that stands."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def _byte(self) -> int:
        return self._file.read(1)[0]

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, _LONGEST_VARINT_BITS, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("too long a number")

    def integer(self) -> int:
        """An integer of any width: its sign is the last bit."""
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and the type of each field of a struct, whose value is to be read then."""
        number = 0
        while head := self._byte():
            difference = head >> 4
            number = number + difference if difference else self.integer()
            yield number, head & 15

    def numbers(self) -> dict[int, int]:
        """The integers of a struct by the numbers of their fields."""
        found = {}
        for number, kind in self.fields():
            if kind in _INTEGERS:
                found[number] = self.integer()
            else:
                self.skip(kind)
        return found

    def structs(self, path: tuple[int, ...]) -> Iterator[None]:
        """Stand at each struct that fields with these numbers lead to, which is to be read then."""
        if not path:
            yield
            return
        for number, kind in self.fields():
            if number != path[0]:
                self.skip(kind)
                continue
            for _ in range(self._items()[0] if kind in _LISTS else 1):
                yield from self.structs(path[1:])

    def _items(self) -> tuple[int, int]:
        """How many a list has, and their type."""
        head = self._byte()
        size = head >> 4
        return self._unsigned() if size == 15 else size, head & 15

    def skip(self, kind: int) -> None:
        """Pass over a value. That of a boolean field is its type."""
        if kind in _INTEGERS:
            self._unsigned()
        elif kind == _BINARY:
            self._file.seek(self._unsigned(), os.SEEK_CUR)
        elif kind == _STRUCT:
            for _, of_field in self.fields():
                self.skip(of_field)
        elif kind in _LISTS:
            size, of_items = self._items()
            for _ in range(size):
                self._skip_item(of_items)
        elif kind == _MAP:
            size = self._unsigned()
            kinds = self._byte() if size else 0
            for _ in range(size):
                self._skip_item(kinds >> 4)
                self._skip_item(kinds & 15)
        elif kind in (_BYTE, _DOUBLE):
            self._file.seek(1 if kind == _BYTE else 8, os.SEEK_CUR)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError("an unknown type")

    def _skip_item(self, kind: int) -> None:
        """As `skip`, in a list or map, where booleans have a byte."""
        if kind in (_TRUE, _FALSE):
            self._byte()
        else:
            self.skip(kind)
