"""Answers about machines, reference kernels, claims and models."""

import msgspec

from gpuprof.collectors.manifest import Calibration
from gpuprof.roofline.claims.judge import ClaimJudgement
from gpuprof.roofline.machine.check import Check
from gpuprof.roofline.utilization.closed_form_answer import ClosedFormAnswer


class Checks(msgspec.Struct, frozen=True):
    """What a machine offers for profiling."""

    checks: tuple[Check, ...]


class DeviceCalibrations(msgspec.Struct, frozen=True):
    """The ceilings measured on the devices of a machine."""

    calibrations: tuple[Calibration, ...]


class KernelVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a family of reference kernels."""

    name: str
    devices: tuple[str, ...]
    # Packages.
    requires: tuple[str, ...]
    dtypes: tuple[str, ...]
    summary: str
    # The package that brings it; "" for ours.
    plugin: str = ""


class KernelFamily(msgspec.Struct, frozen=True, kw_only=True):
    """Versions that solve the same problem."""

    name: str
    # How its sizes are written.
    size_form: str
    versions: tuple[KernelVersion, ...]


class Families(msgspec.Struct, frozen=True):
    """All reference kernels."""

    families: tuple[KernelFamily, ...]


class WaitingProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program under `gpuprof run --wait`."""

    process: int
    title: str
    # Its captures lie beside this path, with a number in their names.
    output: str
    signal: str
    # Unix time.
    since_ns: int


class AttachedProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that gpuprof did not start, and of which it has recorded some steps."""

    process: int
    title: str
    # Where the capture lies.
    capture: str


class Snap(msgspec.Struct, frozen=True, kw_only=True):
    """Which program was asked for a capture, if any, and those of this user that wait."""

    asked: WaitingProgram | None
    waiting: tuple[WaitingProgram, ...]
    # With --attach, where `asked` is null.
    attached: AttachedProgram | None = None


class JudgedClaims(msgspec.Struct, frozen=True):
    """The claims of a table."""

    source: str
    claims: tuple[ClaimJudgement, ...]


class MfuAnswer(ClosedFormAnswer, frozen=True, kw_only=True):
    """The closed form, with what it rests on in sentences."""

    notes: tuple[str, ...]
