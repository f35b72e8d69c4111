"""Xid messages of NVIDIA's driver in the kernel's log.

Reading the log takes the right to: CAP_SYSLOG, or kernel.dmesg_restrict = 0. It holds what happened
since the system started, as far as it was not overwritten.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

KERNEL_LOG: Final = Path("/dev/kmsg")
# A record is read at a time, and none is longer (Documentation/ABI/testing/dev-kmsg).
_RECORD: Final = 8192
_MOST_RECORDS: Final = 200_000
# NVIDIA, "Xid Errors": NVRM: Xid (PCI:0000:3b:00): 79, pid=...
_XID: Final = re.compile(rb"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")


class XidMessage(NamedTuple):
    """One message: the device, "0000:3b:00" in lower case, and the number."""

    pci_address: str
    number: int


def xid_messages(log: Path = KERNEL_LOG) -> tuple[XidMessage, ...] | None:
    """All messages in the log, oldest first; None where it cannot be read."""
    try:
        file = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return tuple(
            XidMessage(found[1].decode().lower(), int(found[2]))
            for found in _XID.finditer(_read(file))
        )
    finally:
        os.close(file)


def _read(file: int) -> bytes:
    records = []
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(file, _RECORD)
        except BrokenPipeError:
            # Overwritten before it was read: the next read goes on with the oldest there is.
            continue
        except OSError:
            break
        if not record:
            break
        records.append(record)
    return b"".join(records)
