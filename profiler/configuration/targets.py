"""What the gate measures: scripts, reference kernels and pytest tests, each as a command."""

import re
from collections.abc import Collection
from pathlib import Path

import msgspec

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.masked_arguments import masked_arguments

# Folders of captures that one process wrote.
CAPTURES = "*.gpuprof"


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One [[target]] of gpuprof.toml: what one fresh process runs.

    Exactly one of script, module, code, bench and pytest. A script is one benchmark called after
    the target; bench and pytest measure several in one process, called target/entry.
    """

    name: str = ""
    script: str | None = None
    module: str | None = None
    code: str | None = None
    # Entries as `gpuprof bench` takes them: "gemm/cublas", "softmax".
    bench: tuple[str, ...] = ()
    # Files, folders or tests as pytest takes them.
    pytest: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    warmup: int = 5
    timed: int = 20
    profiled: int = 2
    # Where a script's steps come from, as `gpuprof run --steps` and --step-range.
    steps: str | None = None
    step_range: str | None = None
    # What a process may take before it counts as hanging.
    timeout_s: float = 600.0

    def __post_init__(self) -> None:
        given = [kind for kind in _KINDS if getattr(self, kind)]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"a target has one of {', '.join(_KINDS)}; this one has {found}")
        if self.timed < 1 or self.profiled < 1 or self.warmup < 0:
            raise ValueError(
                "a target needs timed and profiled of at least 1, warmup of at least 0"
            )
        if not self.name:
            msgspec.structs.force_setattr(self, "name", self._default_name(given[0]))

    def _default_name(self, kind: str) -> str:
        if kind == "script":
            assert self.script is not None
            return Path(self.script).stem
        return {"bench": "bench", "pytest": "tests"}.get(kind, self.module or "code")

    @property
    def kept(self) -> "Target":
        """What is stored of it, and compared with what was: without secrets in its arguments."""
        return msgspec.structs.replace(self, arguments=masked_arguments(self.arguments))

    @property
    def holds_several(self) -> bool:
        """Whether one process measures several benchmarks."""
        return bool(self.bench or self.pytest)

    @property
    def always_profiled(self) -> bool:
        """Whether every process has profiled calls: a bench makes them with its timed ones."""
        return bool(self.bench)

    def command(
        self, python: str, output: Path, only: Collection[str] = (), *, profiled: bool = True
    ) -> tuple[str, ...]:
        """The command of one process that writes its captures into the folder `output`.

        `only` are the benchmarks wanted of those that it holds; empty for all. A process that is
        not `profiled` measures times alone, if not `always_profiled`.
        """
        profiled_steps = self.profiled if profiled else 0
        if self.bench:
            # A version's name, of "bench/gemm/cublas 512x512x512 fp32".
            versions = {name.removeprefix(f"{self.name}/").split(" ")[0]: None for name in only}
            return (
                *(python, "-m", "gpuprof", "bench", *(versions or self.bench), *self.arguments),
                *("--force", "-o", str(output / "bench.gpuprof")),
            )
        if self.pytest:
            counts = f"{self.warmup},{self.timed},{profiled_steps}"
            names = (name.removeprefix(f"{self.name}/") for name in only)
            return (
                *(python, "-m", "pytest", *self.pytest, "-q", "-p", "no:cacheprovider"),
                *(f"--gpuprof-only={name}" for name in names),
                *(f"--gpuprof-record={output}", f"--gpuprof-steps={counts}", *self.arguments),
            )
        options = ["--quiet", "--force", "--stop-after", "-o", str(output / "target.gpuprof")]
        options += ["--warmup", str(self.warmup), "--timed", str(self.timed)]
        options += ["--profiled", str(profiled_steps), "--no-ceilings"]
        if self.steps is not None:
            options += ["--steps", self.steps]
        if self.step_range is not None:
            options += ["--step-range", self.step_range]
        kind, what = self._program()
        return (python, "-m", "gpuprof", "run", *options, *kind, what, *self.arguments)

    def _program(self) -> tuple[tuple[str, ...], str]:
        if self.script is not None:
            return (), self.script
        if self.module is not None:
            return ("-m",), self.module
        assert self.code is not None
        return ("-c",), self.code

    def benchmark(self, capture: Path) -> str:
        """The name of the benchmark that one of a process's captures holds."""
        return f"{self.name}/{capture.stem}" if self.holds_several else self.name

    def holds(self, benchmark: str) -> bool:
        """Whether a benchmark of this name is one of this target's."""
        return benchmark == self.name or (
            self.holds_several and benchmark.startswith(f"{self.name}/")
        )


_KINDS = ("script", "module", "code", "bench", "pytest")


def target_from_command(words: list[str], name: str) -> Target:
    """The target that a command such as `python train.py --small` or `-m pkg.train` stands for.

    Raises `CommandError` (exit 2) for an empty one.
    """
    if words and re.fullmatch(r"python[0-9.]*", Path(words[0]).name):
        words = words[1:]
    if not words:
        raise CommandError(f"the command of {name} is empty; give a script to run", exit_code=2)
    if len(words) > 1 and words[0] == "-m":
        return Target(name=name, module=words[1], arguments=tuple(words[2:]))
    if len(words) > 1 and words[0] == "-c":
        return Target(name=name, code=words[1], arguments=tuple(words[2:]))
    return Target(name=name, script=words[0], arguments=tuple(words[1:]))


def distinct(targets: tuple[Target, ...], place: str) -> tuple[Target, ...]:
    """`targets`, each with a name of its own. Raises `CommandError` (exit 2) naming `place`."""
    names = [target.name for target in targets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CommandError(f"{place}: two targets are called {twice!r}", exit_code=2)
    return targets
