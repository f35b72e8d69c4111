"""NVML through pynvml, of whatever age: opening it, asking one thing of it, finding devices.

Drivers and versions of pynvml fail in ways that no list of types covers: functions that are
missing, that raise what is no NVMLError, or that answer None. So every call is guarded by what
asks, and nothing here relies on a class of errors.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from gpuprof.collectors.distribution import install_command
from gpuprof.collectors.errors import reason

# More devices than any machine has: a count above it is no count.
_MOST_DEVICES: Final = 1024
# NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: no call will succeed again.
_LOST_ERRORS: Final = frozenset({15, 16})

T = TypeVar("T")


def open_library(module: Any = None) -> tuple[Any, str]:
    """Import pynvml, unless `module` is given, and initialise it. Returns it, or None and why.

    Each success must be followed by one `close_library`.
    """
    if module is None:
        try:
            import pynvml
        # nvidia-ml-py3, also `pynvml`, is Python 2: a SyntaxError.
        except Exception as error:
            problem = f"pynvml cannot be imported ({reason(error)})"
            return None, f"{problem}: {install_command('nvidia-ml-py')}"
        module = pynvml
    try:
        module.nvmlInit()
    except Exception as error:
        return None, f"NVML does not start: {reason(error)}"
    return module, ""


def close_library(library: Any) -> None:
    """Undo one `open_library`."""
    with suppress(Exception):
        library.nvmlShutdown()


def ask(question: Callable[[Any], T]) -> T | None:
    """What `question` learns from NVML; None where there is none or it does not answer."""
    library, _ = open_library()
    if library is None:
        return None
    try:
        return answer(lambda: question(library))
    finally:
        close_library(library)


def answer(question: Callable[[], T]) -> T | None:
    """What NVML says, or None where it fails.

    That may be by anything: NVML's own errors, those of ctypes, or of a pynvml that is older or
    newer than the driver.
    """
    try:
        return question()
    except Exception:
        return None


def device_count(library: Any) -> int:
    """How many devices NVML sees. Raises `ValueError` for what is no count."""
    count = library.nvmlDeviceGetCount()
    if not isinstance(count, int) or not 0 <= count <= _MOST_DEVICES:
        raise ValueError(f"NVML counts {count!r} devices")
    return count


def find_handle(library: Any, uuid: str) -> Any:
    """The NVML handle of a device by UUID, with or without its "GPU-" or "MIG-" prefix."""
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    whole = answer(lambda: library.nvmlDeviceGetHandleByUUID(f"GPU-{bare}"))
    return library.nvmlDeviceGetHandleByUUID(f"MIG-{bare}") if whole is None else whole


def visible_handles(library: Any, environment: Mapping[str, str] = os.environ) -> dict[int, Any]:
    """CUDA device index -> NVML handle, following CUDA_VISIBLE_DEVICES, without starting CUDA.

    The handle of a device given by UUID that NVML does not open is None. Raises `ValueError` where
    the order cannot be known: CUDA numbers unlike GPUs by speed unless
    CUDA_DEVICE_ORDER=PCI_BUS_ID. What NVML raises for the count passes through.
    """
    handles = [_handle(library, index) for index in range(device_count(library))]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    entries = None if visible is None else [entry.strip() for entry in visible.split(",")]
    by_number = entries is None or any(entry.isdigit() for entry in entries)
    if by_number:
        _refuse_unordered(library, handles, environment.get("CUDA_DEVICE_ORDER"))
    if entries is None:
        return dict(enumerate(handles))
    chosen: dict[int, Any] = {}
    for entry in entries:
        if entry.isdigit() and int(entry) < len(handles):
            chosen[len(chosen)] = handles[int(entry)]
        elif entry.startswith("MIG-"):
            chosen[len(chosen)] = _mig_handle(library, entry)
        elif entry.startswith("GPU-") and (found := _by_prefix(library, handles, entry)):
            chosen[len(chosen)] = found[0]
        else:
            # CUDA ignores everything from the first invalid entry on.
            break
    return chosen


def text(value: object) -> str:
    """A name from NVML, which older packages give as bytes. Raises `TypeError` for no name."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if not isinstance(value, str):
        raise TypeError(f"NVML names something {value!r}")
    return value


def means_lost(error: Exception) -> bool:
    """Whether NVML says that the device is gone, so that no call about it will succeed again."""
    return getattr(error, "value", None) in _LOST_ERRORS


def _refuse_unordered(library: Any, handles: Sequence[Any], order: str | None) -> None:
    """Raise `ValueError` unless CUDA is known to number the devices as NVML does."""
    if None in handles:
        # Nor is it known whether CUDA counts it.
        raise ValueError(f"NVML does not open device {handles.index(None)}")
    if order == "PCI_BUS_ID":
        return
    kinds = {_name(library, handle) for handle in handles}
    if len(handles) > 1 and (len(kinds) > 1 or None in kinds):
        kind = "an unknown kind" if None in kinds else "several kinds"
        raise ValueError(f"GPUs of {kind}: set CUDA_DEVICE_ORDER=PCI_BUS_ID")


def _by_prefix(library: Any, handles: Sequence[Any], prefix: str) -> list[Any]:
    """The handles of the devices whose UUID begins with `prefix`.

    Raises `ValueError` where NVML has no UUIDs.
    """
    uuids = [_uuid(library, handle) for handle in handles]
    if handles and not any(uuids):
        raise ValueError("CUDA_VISIBLE_DEVICES names GPUs by UUID, and NVML gives none")
    return [
        handle
        for handle, uuid in zip(handles, uuids, strict=True)
        if uuid is not None and uuid.startswith(prefix)
    ]


def _handle(library: Any, index: int) -> Any:
    return answer(lambda: library.nvmlDeviceGetHandleByIndex(index))


def _mig_handle(library: Any, uuid: str) -> Any:
    return answer(lambda: find_handle(library, uuid))


def _name(library: Any, handle: Any) -> str | None:
    return answer(lambda: text(library.nvmlDeviceGetName(handle)))


def _uuid(library: Any, handle: Any) -> str | None:
    return answer(lambda: text(library.nvmlDeviceGetUUID(handle)))
