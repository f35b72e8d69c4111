"""Baselines: processes that were measured once, kept to compare later ones with.

One file a baseline, NAME.json.gz in the folder gpuprof-baselines, with the raw samples of every
process and the environment that they were measured in.
"""

import getpass
import gzip
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuprof._version import __version__
from gpuprof.collectors.errors import CaptureError, CommandError, problem_of
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.collectors.files.writing import refuse_unwritable_folder, write_file
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.collectors.schema_version import refuse_newer, schema_version
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.engine import StoredSide
from gpuprof.reports.formatting import counted, date
from gpuprof.roofline.gate.result import INCOMPARABLE, GateResult, SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import usable
from gpuprof.roofline.gate.suite import MeasuredProcess, time_run

BASELINE_SCHEMA_VERSION = 1
SUFFIX = ".json.gz"
_PIN_FILE = "pinned"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


class Blessing(msgspec.Struct, frozen=True, kw_only=True):
    """Why the level of a baseline is accepted, and who says so."""

    created_ns: int
    user: str
    reason: str


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of one program."""

    schema_version: int = BASELINE_SCHEMA_VERSION
    tool_version: str
    created_ns: int
    name: str
    info: SideInfo
    # By name, as they were configured; empty where it was made from a gate's result.
    targets: dict[str, Target] = {}
    # All of side A; those of a target are its pairs from 0 on.
    processes: tuple[MeasuredProcess, ...]
    blessings: tuple[Blessing, ...] = ()

    @property
    def fingerprint(self) -> Fingerprint:
        """The environment it was measured in."""
        return self.info.fingerprint


def baseline_of(
    result: GateResult, name: str, targets: Sequence[Target] = (), label: str = ""
) -> Baseline:
    """The head side of a gate's result as a baseline.

    Raises `CommandError` (exit 2) where a process of it failed, or none counts, and for results of
    another tool.
    """
    if result.tool:
        raise CommandError(
            f"these are results of {result.tool}: keep their files, which "
            "`gpuprof gate results --base` takes",
            exit_code=2,
        )
    processes = []
    counts: dict[str, int] = {}
    for process in sorted(result.processes, key=lambda p: p.pair):
        if process.side != "B" or process.contamination:
            continue
        if process.failure:
            raise CommandError(f"{process.target}: {process.failure}", exit_code=2)
        pair = counts.get(process.target, 0)
        counts[process.target] = pair + 1
        processes.append(msgspec.structs.replace(process, side="A", pair=pair, first=True))
    if not processes:
        raise CommandError("no process of the head is usable as a baseline", exit_code=2)
    info = msgspec.structs.replace(result.head, label=label or f"baseline {name}")
    return Baseline(
        tool_version=__version__,
        created_ns=result.created_ns,
        name=name,
        info=info,
        targets={target.name: target.kept for target in targets},
        processes=tuple(processes),
    )


def refuse_unusable(
    baseline: Baseline, names: Collection[str], settings: RuleSettings, *, exit_code: int
) -> None:
    """Raise `CommandError` where `baseline` is no base for a gate of the targets `names`.

    Each needs as many usable processes of each of its benchmarks as the first look has pairs.
    """
    least = settings.looks[0]
    for name in names:
        own = [process for process in baseline.processes if process.target == name]
        if 0 < len(own) < least:
            problem = (
                f"has {counted(len(own), 'process', 'processes')} of {name}, and the first look "
                f"needs {least}; save it again with --processes {least} or more"
            )
        else:
            problem = _unusable(own, settings)
        if problem:
            raise CommandError(f"baseline {baseline.name} {problem}", exit_code=exit_code)


def _unusable(processes: Sequence[MeasuredProcess], settings: RuleSettings) -> str:
    """Which benchmark of these processes cannot be a base, and why, in words; "" for none."""
    least = settings.looks[0]
    for benchmark in dict.fromkeys(key for p in processes for key in p.measurements):
        measured = [
            (p, p.measurements[benchmark]) for p in processes if benchmark in p.measurements
        ]
        runs = [time_run(process, measurement) for process, measurement in measured]
        damage = next((run.damage for run in runs if run.damage), "")
        if damage:
            return f"has a damaged process of {benchmark}: {damage}; save it again"
        count = sum(usable(run, settings.discarded_share) for run in runs)
        if count < least:
            lost = dict.fromkeys(reason for _, m in measured for reason in m.discard_reasons)
            why = f" ({', '.join(lost)})" if lost else ""
            return (
                f"has {count} usable of {counted(len(runs), 'process', 'processes')} of "
                f"{benchmark}{why}, and the first look needs {least}; save it again when the "
                "machine is quiet"
            )
    return ""


def stored_side(
    baseline: Baseline, targets: Sequence[Target], settings: RuleSettings
) -> StoredSide:
    """`baseline` as the base of a gate of `targets`.

    Raises `CommandError` (exit 3) where it has none of them, too few usable processes, or measured
    another thing under the same name.
    """
    names = {target.name for target in targets}
    chosen = tuple(process for process in baseline.processes if process.target in names)
    if not chosen:
        known = ", ".join(dict.fromkeys(process.target for process in baseline.processes))
        raise CommandError(
            f"baseline {baseline.name} has no target of this gate, only {known}",
            exit_code=INCOMPARABLE,
        )
    refuse_unusable(baseline, names, settings, exit_code=INCOMPARABLE)
    for target in targets:
        if baseline.targets.get(target.name, target).kept != target.kept:
            raise CommandError(
                f"baseline {baseline.name} measured {target.name} with other settings; "
                "save it again",
                exit_code=INCOMPARABLE,
            )
    return StoredSide(
        info=baseline.info,
        processes=chosen,
        fingerprints={process.target: baseline.fingerprint for process in chosen},
        other_session=f"{baseline.name}, {date(baseline.created_ns)}",
    )


def blessed(baseline: Baseline, reason: str) -> Baseline:
    """`baseline` with a blessing by this user, now. Raises `CommandError` without a reason."""
    if not reason.strip():
        raise CommandError("--reason is empty; say why the level is accepted", exit_code=2)
    blessing = Blessing(created_ns=time.time_ns(), user=_user(), reason=reason.strip())
    return msgspec.structs.replace(baseline, blessings=(*baseline.blessings, blessing))


@dataclass(frozen=True)
class BaselineFolder:
    """The baselines of one project."""

    folder: Path

    def file(self, name: str) -> Path:
        """Where the baseline `name` is kept. Raises `CommandError` (exit 2) for no name."""
        if not _NAME.fullmatch(name):
            raise CommandError(
                f"{name!r} is no name of a baseline: use letters, digits and . _ + -", exit_code=2
            )
        return self.folder / f"{name}{SUFFIX}"

    def load(self, reference: str, *, missing: int = 2) -> Baseline:
        """The baseline in the file, or of the name, `reference`.

        Raises `CommandError`: with the exit code `missing` where there is none, 2 where it cannot
        be read.
        """
        file = Path(reference)
        if not file.is_file():
            looks_like_a_path = "/" in reference or reference.endswith((".json", ".gz"))
            if not looks_like_a_path:
                file = self.file(reference)
            if looks_like_a_path or not file.is_file():
                raise CommandError(
                    f"there is no baseline {file}; make one with `gpuprof baseline save`",
                    exit_code=missing,
                )
        return read_baseline(file)

    def refuse_unwritable(self) -> None:
        """Raise `CommandError` if nothing can be kept here, before anything is measured."""
        refuse_unwritable_folder(self.folder, option="--folder")

    def save(self, baseline: Baseline) -> Path:
        """Write `baseline`, in place of one of its name. Raises `OSError`."""
        file = self.file(baseline.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        # Without a time in it the same baseline is the same file.
        write_file(file, gzip.compress(msgspec.json.encode(baseline), mtime=0))
        return file

    def all(self) -> tuple[Baseline, ...]:
        """Every baseline, the oldest first."""
        found = (read_baseline(file) for file in sorted(self.folder.glob(f"*{SUFFIX}")))
        return tuple(sorted(found, key=lambda baseline: baseline.created_ns))

    def pin(self, name: str) -> None:
        """Compare cumulative budgets with the baseline `name`."""
        self.load(name)
        write_file(self.folder / _PIN_FILE, f"{name}\n".encode())

    def pinned(self) -> str | None:
        """The name of the pinned baseline."""
        file = self.folder / _PIN_FILE
        return file.read_text(errors="replace").strip() if file.is_file() else None


def read_baseline(file: Path) -> Baseline:
    """The baseline in `file`, compressed or not. Raises `CommandError` (exit 2)."""
    try:
        content = stored_content(file)
        refuse_newer(file, schema_version(content), BASELINE_SCHEMA_VERSION)
        return decode_stored(content, Baseline)
    except CaptureError as error:
        raise CommandError(f"{file} is no baseline: {error.problem}", exit_code=2) from error
    # msgspec's errors, and invalid UTF-8.
    except ValueError as error:
        raise CommandError(f"{file} is no baseline: {problem_of(error)}", exit_code=2) from error


def _user() -> str:
    try:
        return getpass.getuser()
    # Without a name in the environment or the password file it raises one of these.
    except (KeyError, OSError, ImportError):
        return "unknown"
