"""The process in which NVIDIA's package ncu-report reads a report: some damage ends its process.

It is run as a file, so that it starts without the rest of gpuprof, and writes the launches to its
stdout as MessagePack: [[name, [[metric, unit, value], ...]], ...]. The value is None where it is
neither a number nor a text. What is wrong is the last line of its stderr.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any


def main(file: str, most_bytes: int) -> None:
    """Read the report `file` with at most so many bytes of memory."""
    # The package may print; what it prints is no part of the answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    _limit(most_bytes)
    # Here, because what is run below sets where packages are first.
    import msgspec
    import ncu_report

    context = ncu_report.load_report(file)
    launches = [
        (_text(action.name(action.NameBase_DEMANGLED)), list(_metrics(action)))
        for number in range(context.num_ranges())
        for action in _actions(context.range_by_idx(number))
    ]
    with open(answer, "wb") as output:
        output.write(msgspec.msgpack.encode(launches))


def _limit(most_bytes: int) -> None:
    # There are no limits on Windows, and who has set one may not let it be raised.
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# ncu-report is generated code without types.
def _actions(found: Any) -> Iterator[Any]:
    for number in range(found.num_actions()):
        yield found.action_by_idx(number)


def _metrics(action: Any) -> Iterator[tuple[str, str, int | float | str | None]]:
    for name in sorted(action.metric_names()):
        metric = action.metric_by_name(name)
        value = metric.value()
        if isinstance(value, (str, bytes)):
            value = _text(value)
        elif not isinstance(value, (int, float)):
            value = None
        yield _text(name), _text(metric.unit()), value


def _text(value: str | bytes | None) -> str:
    """What is no UTF-8 the package gives as bytes, or as halves of surrogate pairs."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return (value or "").encode(errors="replace").decode()


if __name__ == "__main__":
    sys.path[:] = sys.argv[3:]
    main(sys.argv[1], int(sys.argv[2]))
