"""From the start of a session to all that a capture is made of."""

import logging
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import torch
from torch.optim.optimizer import Optimizer

from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.collectors.errors import reason
from gpuprof.collectors.host_identity import host_identity
from gpuprof.collectors.live import cuda, garbage_collection, inductor_codegen
from gpuprof.collectors.live.collection import LiveCollection
from gpuprof.collectors.live.collector import LatestReading, Scope
from gpuprof.collectors.live.compilations import compilations, graph_breaks
from gpuprof.collectors.live.environment import EnvironmentInForce
from gpuprof.collectors.live.fingerprint import collect_fingerprint
from gpuprof.collectors.live.live_objects import live_objects
from gpuprof.collectors.live.meta_tensors import only_meta_tensors
from gpuprof.collectors.live.model_parameters import live_model
from gpuprof.collectors.live.nvml.health import device_health
from gpuprof.collectors.live.peak_memory import peak_resident_bytes
from gpuprof.collectors.live.script_errors import is_ours
from gpuprof.collectors.manifest import (
    Ending,
    Fingerprint,
    ModelParameters,
    ProcessInfo,
)
from gpuprof.profiler.run.live_state import LiveState
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.recorded import Recorded, Subject
from gpuprof.profiler.run.session import Session
from gpuprof.profiler.run.session_options import SessionOptions
from gpuprof.profiler.run.step_sources import FoundSteps
from gpuprof.profiler.run.surroundings import enough_address_space

_log = logging.getLogger(__name__)
_SAMPLE_INTERVAL_NS = 20_000_000

T = TypeVar("T")


class Recording:
    """A session with its live collectors."""

    def __init__(
        self,
        subject: Subject,
        options: SessionOptions,
        *,
        ranks: Ranks | None = None,
        store_early: Callable[[Recorded], None] | None = None,
        live: LiveState | None = None,
        on_step: Callable[[str], None] = lambda phase: None,
        found_steps: FoundSteps | None = None,
    ) -> None:
        """`store_early` is called with what is known when the profiled steps are done.

        `live` is told of each step, and of the devices in use; `on_step` of the phase after each.
        `found_steps`: as in `Session`.
        """
        self.subject = subject
        self.options = options
        self._live = live
        self._phase = ""
        self.ranks = ranks or Ranks.from_environment()
        self.session = Session(
            options,
            on_profiled=self._profiled,
            on_step=self._stepped,
            tells_later=live is not None,
            ranks=self.ranks,
            found_steps=found_steps,
        )
        self._on_step = on_step
        self._store_early = store_early
        self._environment = EnvironmentInForce()
        self._model: ModelParameters | None = None
        self._unread: list[str] = []
        self._only_meta_tensors = False
        self._torch_settings: dict[str, str] | None = None
        self._collection = LiveCollection(
            Scope(
                _own_devices(self.ranks),
                rank=self.ranks.rank,
                interval_ns=_SAMPLE_INTERVAL_NS,
                memory_stacks=options.memory_stacks,
                on_sample=self._sampled,
            )
        )

    def start(self) -> None:
        """Begin to watch this process."""
        try:
            inductor_codegen.install(anew=self.options.stacks)
            if self._live is not None:
                self._live.enter("searching")
            self._collection.start()
            self.session.start()
        except BaseException as error:
            if not is_ours(error):
                raise
            self.session.give_up(error)

    def finish(self, ending: Ending, exit_code: int, exceptions: tuple[str, ...] = ()) -> Recorded:
        """Stop watching and return what was recorded; `close` must follow once it is stored.

        `exceptions`: as in `ProcessInfo`.
        """
        seen = self.session.finish()
        collected = self._collection.stop()
        health = self._fact("the health of the GPUs", _health) or ()
        process = msgspec.structs.replace(
            self._process(ending, exit_code),
            exceptions=exceptions,
            device_health=health,
            plugins=self._collection.plugins(),
        )
        return Recorded(self.subject, self.ranks, seen, process, collected)

    def close(self) -> None:
        """Remove the traces, and restore what was replaced."""
        self.session.close()
        inductor_codegen.remove()

    def _stepped(self, phase: str, steps: int) -> None:
        if phase != self._phase:
            self._phase = phase
            _log.info("%s begins after %d steps", phase, steps)
        if self._live is not None:
            self._live.step(phase, steps)
        self._on_step(phase)

    def _sampled(self, readings: Sequence[LatestReading]) -> None:
        if self._live is not None and cuda.in_use():
            self._live.sample(readings)

    def _profiled(self, session: Session) -> None:
        self._collection.slow_down()
        # What is generated from now on runs in no profiled step.
        inductor_codegen.remove()
        if self._store_early is None:
            return
        with enough_address_space():
            process = self._process("unknown", None)
            self._store_early(Recorded(self.subject, self.ranks, session.seen, process))

    def _process(self, ending: Ending, exit_code: int | None) -> ProcessInfo:
        # At the end of the script its optimizers and its model may be gone.
        alive = self._fact("objects", _objects_of_torch) or []
        self._model = self._fact("the model", lambda: live_model(alive)) or self._model
        on_meta = self._fact("the devices of tensors", lambda: only_meta_tensors(alive))
        self._only_meta_tensors = on_meta or self._only_meta_tensors
        fingerprint = self._fact("the environment", self._fingerprint) or Fingerprint()
        breaks = self._fact("graph breaks", graph_breaks)
        peak_memory_bytes = self._fact("peak memory", _peak_memory_bytes)
        notes = self._collection.notes(gpu_in_use=cuda.in_use())
        return ProcessInfo(
            rank=self.ranks.rank,
            world_size=self.ranks.world_size,
            process=os.getpid(),
            host=host_identity(platform.node()),
            command=self.subject.command,
            exit_code=exit_code,
            ending=ending,
            fingerprint=fingerprint,
            schedule=self.options.schedule,
            model=self._model,
            only_meta_tensors=self._only_meta_tensors,
            peak_memory_bytes=peak_memory_bytes,
            allocators=self._fact("allocators", cuda.allocator_statistics) or (),
            graph_breaks=breaks,
            compilations=self._fact("compilations", compilations),
            garbage_collections=garbage_collection.collected(),
            warnings=(
                *self._unread,
                *self._variables_without_effect(),
                *(note.sentence for note in notes),
            ),
        )

    def _fingerprint(self) -> Fingerprint:
        found = collect_fingerprint(self._environment.now())
        # Those of the profiled steps: at the end a program may have left a context manager.
        if self._torch_settings is None:
            self._torch_settings = found.torch_settings
        return msgspec.structs.replace(found, torch_settings=self._torch_settings)

    def _variables_without_effect(self) -> tuple[str, ...]:
        names = self._environment.without_effect()
        if not names:
            return ()
        return (
            f"changed too late, after torch was imported, and without effect: {', '.join(names)}",
        )

    def _fact(self, name: str, read: Callable[[], T]) -> T | None:
        """What `read` finds in this process, or None with one warning.

        The objects that it looks at are the program's own, and may do anything when looked at.
        """
        try:
            return read()
        except BaseException as error:
            if not is_ours(error):
                raise
            sentence = f"{name} could not be read: {reason(error)}"
            if sentence not in self._unread:
                self._unread.append(sentence)
            return None


def _objects_of_torch() -> list[Any]:
    return live_objects(Optimizer, torch.nn.Module, torch.Tensor)


def _health() -> tuple[DeviceHealth, ...]:
    """Of the GPUs, where the program used one."""
    return device_health() if cuda.in_use() else ()


def _peak_memory_bytes() -> int:
    """Device memory that torch held at most, or, without a GPU in use, the process's own."""
    if cuda.in_use():
        return cuda.peak_memory_bytes()
    return peak_resident_bytes()


def _own_devices(ranks: Ranks) -> list[int] | None:
    """The CUDA devices that this rank works on, as far as its number tells; None for all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    # Where the launcher gives each rank a device of its own, that is the only one it sees.
    if ranks.alone or (visible is not None and ranks.local_rank >= len(visible.split(","))):
        return None
    return [ranks.local_rank]
