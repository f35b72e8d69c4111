"""What a gate would stumble over, found before anything is measured."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import msgspec

from gpuprof.collectors.manifest import Fingerprint
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.engine import StoredSide
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.roofline.gate.patterns import could_match
from gpuprof.roofline.gate.suite import Rules
from gpuprof.roofline.machine.environment import differences

# Prints which of the modules in its arguments cannot be imported, without importing them.
_MISSING = """\
import importlib.util, json, sys
def missing(name):
    try:
        return importlib.util.find_spec(name) is None
    except ImportError:
        return True
print(json.dumps([name for name in sys.argv[1:] if missing(name)]))
"""
_FINGERPRINT = """\
import msgspec, sys
from gpuprof.collectors.live.fingerprint import collect_fingerprint
sys.stdout.buffer.write(msgspec.json.encode(collect_fingerprint()))
"""
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class CheckFindings:
    """What is wrong, a sentence each."""

    # With these the gate ends without a verdict.
    problems: tuple[str, ...] = ()
    # With these it runs, and perhaps not as somebody meant.
    remarks: tuple[str, ...] = ()

    def __add__(self, other: "CheckFindings") -> "CheckFindings":
        return CheckFindings(self.problems + other.problems, self.remarks + other.remarks)


def check_files(base: SideProgram | StoredSide, head: SideProgram) -> CheckFindings:
    """Scripts and tests that are not there. What only the head has is new, and not gated."""
    found = CheckFindings(tuple(said for target in head.targets for said in _absent(head, target)))
    if isinstance(base, StoredSide):
        return found
    absent = tuple(said for target in base.targets for said in _absent(base, target))
    if base.commit is None:
        return found + CheckFindings(absent)
    return found + CheckFindings(remarks=tuple(f"{said}: new, and not gated" for said in absent))


def _absent(program: SideProgram, target: Target) -> Iterator[str]:
    files = [target.script] if target.script is not None else []
    for file in (*files, *(selected.partition("::")[0] for selected in target.pytest)):
        if not (program.folder / file).exists():
            yield f"{program.label}: there is no {file} (target {target.name})"


def check_rules(rules: Rules, targets: tuple[Target, ...], today: date) -> CheckFindings:
    """Budgets and waivers that no target can match, and waivers that are over."""
    patterns = [("budget", row.match) for row in rules.budgets]
    patterns += [("waiver", waiver.match) for waiver in rules.waivers]
    unmatched = tuple(
        f"the {kind} for {pattern!r} matches no target"
        for kind, pattern in patterns
        if not any(could_match(pattern, t.name, several=t.holds_several) for t in targets)
    )
    expired = tuple(
        f"the waiver for {waiver.match!r} expired on {waiver.expires}"
        for waiver in rules.waivers
        if today > waiver.expires
    )
    return CheckFindings(remarks=unmatched + expired)


def check_interpreter(program: SideProgram) -> CheckFindings:
    """Modules that the side's interpreter lacks in the side's folder."""
    wanted = ["gpuprof", "torch"]
    for target in program.targets:
        wanted += ["pytest"] if target.pytest else []
        wanted += [target.module] if target.module is not None else []
    names = tuple(dict.fromkeys(wanted))
    said = _output(program, _MISSING, *names)
    if isinstance(said, str):
        return CheckFindings((f"{program.label}: {program.python} {said}",))
    missing = msgspec.json.decode(said, type=list[str])
    return CheckFindings(
        tuple(f"{program.label}: {program.python} finds no module {name}" for name in missing)
    )


def check_baseline(base: StoredSide, head: SideProgram) -> CheckFindings:
    """What makes this machine another than the baseline's, as far as no program has a say in it."""
    said = _output(head, _FINGERPRINT)
    if isinstance(said, str):
        return CheckFindings((f"{head.label}: its environment is unknown: {head.python} {said}",))
    here = msgspec.json.decode(said, type=Fingerprint)
    problems: dict[str, None] = {}
    for target, stored in base.fingerprints.items():
        # A program sets these for itself.
        own = msgspec.structs.replace(
            here,
            torch_threads=stored.torch_threads,
            float32_matmul_precision=stored.float32_matmul_precision,
            allow_tf32_matmul=stored.allow_tf32_matmul,
            allow_tf32_cudnn=stored.allow_tf32_cudnn,
            environment=stored.environment,
        )
        found = differences(stored, own).strict
        problems.update(dict.fromkeys(f"{target}: not comparable: {one}" for one in found))
    return CheckFindings(tuple(problems))


def check_bench(targets: tuple[Target, ...]) -> CheckFindings:
    """Names of reference kernels that there are not."""
    problems = ((target.name, _unknown_kernel(target)) for target in targets if target.bench)
    return CheckFindings(tuple(f"{name}: {problem}" for name, problem in problems if problem))


def _unknown_kernel(target: Target) -> str:
    from gpuprof.reference_kernels.families import UnknownNameError, select

    try:
        select(target.bench)
    except UnknownNameError as error:
        return str(error)
    return ""


def _output(program: SideProgram, code: str, *arguments: str) -> bytes | str:
    """What `code` prints in the side's interpreter and folder, or what went wrong, in words."""
    try:
        done = subprocess.run(
            [program.python, "-c", code, *arguments],
            cwd=program.folder,
            env=program.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"does not answer within {_PATIENCE_S:.0f} s"
    except OSError as error:
        return f"cannot be started: {error.strerror or error}"
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"exits with {done.returncode}: {''.join(last)}"
    return done.stdout
