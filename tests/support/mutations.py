"""Damage to what a reader is given: blind, to bytes, and aware of what they hold.

Every function takes its chance from a `random.Random`, so that a number names an input.
"""

import csv
import io
import json
import pickle
import random
import re
import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import polars as pl

# Stand for what JSON's own writer cannot say, until it has written the rest.
_RAW: Final = "\ue000"
_AGAIN: Final = "\ue001"

# Of other types, at the ends of ranges, and what has a meaning to a terminal or to a page.
ODD_NUMBERS: Final[tuple[int | float, ...]] = (
    0, 1, -1, 2, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, -(2**31), -(2**63),
    10**30, 10**400, 0.5, -0.0, 1e-320, 1e18, 1e300, -1e300,
    float("nan"), float("inf"), -float("inf"),
)  # fmt: skip
ODD_TEXTS: Final = (
    "", "0", "7", "NaN", "1e9999999", "null", "a\nb", "\0", "\x1b[31mred", "\u202eright", "\ud800",
    "\ufeff", "::error::x", "##[error]x", "@name #12", "<script>alert(1)</script>", "]]>", "=1+1",
    "../../x", "/", "a" * 5000, "[", "[[1, 2], [3]]", '["float"]', '{"a": 1}', "%s%n{0}", "[bold]",
    "k<int>(float*)", "_ZN1a1bEv", "nccl:all_reduce",
)  # fmt: skip
ODD_TOKENS: Final = (
    "1e9999999", "-1e9999999", "1e-9999999", "1" * 5000, "0x10", "inf", "nan", "-nan(ind)", "tru",
    "'a'", "01", "+1",
)  # fmt: skip


def odd_value(chance: random.Random) -> Any:
    """A value that JSON's writer takes, of any type."""
    kind = chance.randrange(8)
    if kind < 3:
        return chance.choice(ODD_NUMBERS)
    if kind < 6:
        return chance.choice(ODD_TEXTS)
    if kind == 6:
        return chance.choice((None, None, True, False, [], {}, [[]], [None], {"a": None}))
    return f"{_RAW}{chance.choice(ODD_TOKENS)}{_RAW}"


# -- blind -----------------------------------------------------------------------------------------


def _flip(chance: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 3, 10, 50))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content))]


def _drop(chance: random.Random, content: bytes) -> bytes:
    start = chance.randrange(len(content))
    return content[:start] + content[start + chance.randint(1, 200) :]


def _repeat(chance: random.Random, content: bytes) -> bytes:
    start = chance.randrange(len(content))
    part = content[start : start + chance.randint(1, 2000)]
    return content[:start] + part * chance.randint(2, 5) + content[start:]


def _zeros(chance: random.Random, content: bytes) -> bytes:
    """As a file whose blocks were not all written."""
    start = chance.randrange(len(content))
    length = chance.choice((1, 100, 4096, 100_000))
    return content[:start] + bytes(length) + content[start + chance.choice((0, length)) :]


def _move(chance: random.Random, content: bytes) -> bytes:
    """A part of it in the place of another, as pages of a database."""
    size = chance.choice((8, 64, 512, 4096))
    source, target = (chance.randrange(len(content)) // size * size for _ in range(2))
    return content[:target] + content[source : source + size] + content[target + size :]


_TOKENS: Final = tuple(
    token.encode(errors="surrogatepass")
    for token in (*ODD_TEXTS, *ODD_TOKENS, *'"\\{}[],:', "\n  {", '},{"', "\n", '"traceEvents": [')
)


def _insert(chance: random.Random, content: bytes) -> bytes:
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(content) + 1)
        content = content[:at] + chance.choice(_TOKENS) + content[at:]
    return content


_BLIND: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    *(_flip, _cut, _drop, _repeat, _zeros, _move, _insert),
)


def damaged_bytes(chance: random.Random, content: bytes) -> bytes:
    """`content` changed in up to three places, whatever it holds."""
    for _ in range(chance.randint(1, 3)):
        content = chance.choice(_BLIND)(chance, content) or b"\n"
    return content


# -- JSON ------------------------------------------------------------------------------------------


def damaged_json(chance: random.Random, content: bytes) -> bytes:
    """`content`, one JSON document, with other values, and keys that are missing or twice there."""
    tree = json.loads(content)
    for _ in range(chance.choice((1, 1, 2, 5))):
        tree = _damaged_tree(chance, tree)
    text = json.dumps(tree, separators=chance.choice(((",", ":"), (", ", ": "))))
    again = json.dumps(_AGAIN)[1:-1]
    raw = json.dumps(_RAW)[1:-1]
    return text.replace(again, "").replace(f'"{raw}', "").replace(f'{raw}"', "").encode()


def _damaged_tree(chance: random.Random, tree: Any) -> Any:
    """A copy along one path to a value that is changed."""
    if not isinstance(tree, (dict, list)) or not tree or chance.random() < 0.03:
        return odd_value(chance)
    copy: Any = tree.copy()
    key = chance.choice(list(tree)) if isinstance(tree, dict) else chance.randrange(len(tree))
    inner = tree[key]
    if isinstance(inner, (dict, list)) and inner and chance.random() < 0.9:
        copy[key] = _damaged_tree(chance, inner)
        return copy
    kind = chance.randrange(10)
    if kind < 6:
        copy[key] = odd_value(chance)
    elif kind == 6:
        del copy[key]
    elif kind == 7:
        # The value of another key.
        others = list(tree.values()) if isinstance(tree, dict) else tree
        copy[key] = chance.choice(others)
    elif isinstance(tree, dict):
        copy[f"{key}{_AGAIN}" if kind == 8 else chance.choice(ODD_TEXTS)] = odd_value(chance)
    else:
        copy += copy[: chance.randint(1, 3)]
    return copy


def damaged_pickle(chance: random.Random, content: bytes) -> bytes:
    """`content`, a pickle of data, with other values and keys, and what is shared in other places.

    `content` is run, so it must be one of our own.
    """
    tree = _loaded(content)
    for _ in range(chance.choice((1, 1, 2, 5))):
        tree = _damaged_tree(chance, tree)
    return pickle.dumps(_without_marks(tree), protocol=chance.choice((2, 3, 4, 5)))


@lru_cache(maxsize=8)
def _loaded(content: bytes) -> Any:
    return pickle.loads(content)


def _without_marks(tree: Any, known: dict[int, Any] | None = None) -> Any:
    """`tree` without what stands for JSON's odd tokens; what is shared stays so."""
    known = {} if known is None else known
    if isinstance(tree, str):
        return tree.strip(_RAW).rstrip(_AGAIN)
    if not isinstance(tree, (dict, list, tuple)):
        return tree
    if id(tree) not in known:
        if isinstance(tree, dict):
            made: Any = {
                _without_marks(key, known): _without_marks(value, known)
                for key, value in tree.items()
            }
        else:
            made = type(tree)(_without_marks(each, known) for each in tree)
        # With the original, whose id is taken as long as it lives.
        known[id(tree)] = (tree, made)
    return known[id(tree)][1]


# -- lines and rows --------------------------------------------------------------------------------

_ODD_TOML: Final = (
    "1", "-1", "0", "9223372036854775808", "1e400", "nan", "-inf", "true", '""', "[]", "{}",
    "[[1]]", '"\\u001b[31m"', "1979-05-27T07:32:00Z", '["a", 1]', '"' + "a" * 5000 + '"', "{a = 1}",
    "'''\n::error::x'''", "[" * 3000, "0.05", '"x"',
)  # fmt: skip


def damaged_toml(chance: random.Random, content: bytes) -> bytes:
    """`content`, a TOML document of a key a line, with other values and keys."""
    lines = content.decode().splitlines()
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        kind = chance.randrange(8)
        if kind < 5 and equals:
            lines[at] = f"{key} = {chance.choice(_ODD_TOML)}"
        elif kind == 5:
            lines.insert(chance.randrange(len(lines)), lines[at])
        elif kind == 6:
            lines[at] = lines[at].replace(key, f"{key}x", 1)
        else:
            del lines[at]
            lines = lines or [""]
    return "\n".join(lines).encode(errors="surrogatepass")


def damaged_log(chance: random.Random, content: bytes) -> bytes:
    """`content`, lines of text, with other numbers and words, and lines elsewhere."""
    lines = content.decode().splitlines()
    for _ in range(chance.choice((1, 2, 5, 20))):
        at = chance.randrange(len(lines))
        words = re.split(r"(\W+)", lines[at])
        kind = chance.randrange(8)
        if kind < 5:
            words[chance.randrange(len(words))] = str(odd_value(chance)).strip(_RAW)
            lines[at] = "".join(words)
        elif kind == 5:
            lines.insert(chance.randrange(len(lines)), lines[at])
        elif kind == 6:
            lines[at] = lines[at] * chance.choice((2, 100))
        else:
            del lines[at]
            lines = lines or [""]
    return "\n".join(lines).encode(errors="surrogatepass")


def damaged_csv(chance: random.Random, content: bytes) -> bytes:
    """`content`, a table with a header, with other cells, and columns that are missing or twice."""
    rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
    for _ in range(chance.choice((1, 1, 2, 5))):
        row = chance.choice(rows)
        column = chance.randrange(len(row) or 1)
        kind = chance.randrange(8)
        if kind < 4 and row:
            row[column] = str(odd_value(chance)).strip(_RAW)
        elif kind == 4 and rows[0]:
            # A column under another one's name.
            rows[0][chance.randrange(len(rows[0]))] = chance.choice(rows[0])
        elif kind == 5:
            rows = [[cell for at, cell in enumerate(one) if at != column] for one in rows]
        elif kind == 6:
            rows.insert(chance.randrange(len(rows) + 1), list(chance.choice(rows)))
        else:
            rows = [one[: chance.choice((len(one), column + 1))] for one in rows]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode(errors="surrogatepass")


# -- tables ----------------------------------------------------------------------------------------

_OTHER_TYPES: Final = (
    *(pl.String, pl.Int8, pl.Int64, pl.UInt64, pl.Int128, pl.Float32, pl.Float64, pl.Boolean),
    *(pl.Binary, pl.Datetime("us"), pl.Duration("ns"), pl.Date, pl.Categorical, pl.Null),
    *(pl.List(pl.Int64), pl.List(pl.String), pl.Decimal(38, 9)),
)  # fmt: skip


def damaged_frame(chance: random.Random, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with other values, types, columns and rows."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        if not frame.width:
            return frame
        name = chance.choice(frame.columns)
        kind = chance.randrange(8)
        if kind < 4:
            frame = frame.with_columns(_with_odd_values(chance, frame[name]))
        elif kind == 4:
            frame = frame.with_columns(_of_another_type(chance, frame[name]))
        elif kind == 5:
            frame = frame.drop(name)
        elif kind == 6:
            other = chance.choice(frame.columns)
            frame = frame.with_columns(frame[other].alias(name))
        else:
            frame = chance.choice((frame.clear(), pl.concat([frame, frame]), frame.reverse()))
    return frame


def _with_odd_values(chance: random.Random, column: pl.Series) -> pl.Series:
    """Some or all values replaced by others of the column's type, where it has such."""
    values: list[Any] = [None]
    if column.dtype.is_temporal():
        # Python has no moments so far away as these may be.
        return column.clear(len(column))
    if column.dtype.is_integer():
        values += [n for n in ODD_NUMBERS if isinstance(n, int) and -(2**63) <= n < 2**63]
    elif column.dtype.is_float():
        values += [float(n) for n in ODD_NUMBERS if abs(n) < 1e305 or isinstance(n, float)]
    elif column.dtype == pl.String:
        values += [text for text in ODD_TEXTS if text != "\ud800"]
    elif column.dtype == pl.Boolean:
        values += [True, False]
    value = chance.choice(values)
    share = chance.choice((0.0, 0.5, 1.0))
    one = chance.randrange(len(column) or 1)
    changed = [
        value if at == one or chance.random() < share else old for at, old in enumerate(column)
    ]
    return pl.Series(column.name, changed, dtype=column.dtype, strict=False)


def _of_another_type(chance: random.Random, column: pl.Series) -> pl.Series:
    dtype = chance.choice(_OTHER_TYPES)
    try:
        return column.cast(dtype, strict=False)
    except pl.exceptions.PolarsError:
        return pl.Series(column.name, [None] * len(column), dtype=dtype)


def damage_database(chance: random.Random, connection: sqlite3.Connection) -> None:
    """Other values, types, columns, rows and tables in an SQLite file without constraints."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    for _ in range(chance.choice((1, 1, 2, 5))):
        table = chance.choice(tables)
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        if not columns:
            continue
        column = chance.choice(columns)
        kind = chance.randrange(8)
        if kind < 4:
            _change_rows(chance, connection, table, column)
        elif kind == 4 and len(columns) > 1:
            _attempt(connection, f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
        elif kind == 5:
            _attempt(connection, f'INSERT INTO "{table}" SELECT * FROM "{table}"')
        elif kind == 6:
            other = chance.choice(columns)
            _attempt(connection, f'UPDATE "{table}" SET "{column}" = "{other}"')
        else:
            _attempt(connection, chance.choice((f'DROP TABLE "{table}"', f'DELETE FROM "{table}"')))


def _change_rows(
    chance: random.Random, connection: sqlite3.Connection, table: str, column: str
) -> None:
    values: Sequence[Any] = (
        *(n for n in ODD_NUMBERS if isinstance(n, float) or -(2**63) <= n < 2**63),
        *(text for text in ODD_TEXTS if text != "\ud800"),
        *(None, b"\xff\0blob"),
    )
    some = chance.choice(("", " WHERE rowid = 1", " WHERE rowid % 2 = 0"))
    _attempt(connection, f'UPDATE "{table}" SET "{column}" = ?{some}', (chance.choice(values),))


def _attempt(connection: sqlite3.Connection, statement: str, values: Sequence[Any] = ()) -> None:
    """What SQLite refuses, as a text for an integer key, is left out."""
    try:
        connection.execute(statement, values)
    except sqlite3.Error:
        pass
