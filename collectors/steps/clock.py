"""Times steps without a profiler: CUDA events where there is a GPU, the host's clock beside them.

Events are read only after the last step, so that no step waits for the device. Where the host
runs ahead, the device does a step long after the host has marked it: both times are kept.
"""

from typing import NamedTuple

from gpuprof.collectors.live import garbage_collection
from gpuprof.collectors.live.cuda import StreamMoment
from gpuprof.collectors.live.loader_time import LoaderTime
from gpuprof.collectors.live.run_delay import RunDelay
from gpuprof.collectors.live.unix_clock import UnixClock, monotonic_ns
from gpuprof.collectors.steps.step_time import StepTime


class _Boundary(NamedTuple):
    monotonic_ns: int
    tokens: int | None
    run_delay_ns: int | None
    garbage_collection_ns: int | None
    loader_ns: int | None


class _DeviceStep(NamedTuple):
    start_ns: int
    duration_ns: int


class StepClock:
    """Collects step boundaries of one phase."""

    def __init__(self, phase: str, *, device_events: bool) -> None:
        self._phase = phase
        self._device_events = device_events
        self._unix = UnixClock()
        self._run_delay = RunDelay()
        # Of profiled steps `LoaderWaits` tells more, and what it costs a step would be in this.
        self._loader_time = LoaderTime() if phase == "timed" else None
        self._boundaries: list[_Boundary] = []
        self._events: list[StreamMoment] = []

    @property
    def steps(self) -> int:
        """Complete steps so far."""
        return max(0, len(self._boundaries) - 1)

    @property
    def started(self) -> bool:
        """Whether the first step has begun."""
        return bool(self._boundaries)

    @property
    def was_set(self) -> bool:
        """Whether the system's clock was set since this was made: traces have its time."""
        return self._unix.set_by_ns() != 0

    def boundary(self, tokens: int | None = None) -> None:
        """Note that one step ends here and the next begins."""
        if self._loader_time is not None and not self.started:
            self._loader_time.start()
        if self._device_events:
            self._events.append(StreamMoment())
        self._boundaries.append(
            _Boundary(
                monotonic_ns(),
                tokens,
                self._run_delay.read_ns(),
                garbage_collection.paused_ns(),
                None if self._loader_time is None else self._loader_time.read_ns(),
            )
        )

    def stop(self) -> None:
        """Leave the program as it was."""
        if self._loader_time is not None:
            self._loader_time.stop()

    def read(self) -> list[StepTime]:
        """The complete steps; no more are marked. Waits for the device to do what is queued."""
        self.stop()
        device = self._device_steps()
        return [
            StepTime(
                phase=self._phase,
                start_ns=self._unix.at_ns(start.monotonic_ns),
                end_ns=self._unix.at_ns(end.monotonic_ns),
                host_ns=end.monotonic_ns - start.monotonic_ns,
                device_ns=device[index].duration_ns if device else None,
                device_start_ns=device[index].start_ns if device else None,
                tokens=end.tokens,
                run_delay_ns=_between(start.run_delay_ns, end.run_delay_ns),
                garbage_collection_ns=_between(
                    start.garbage_collection_ns, end.garbage_collection_ns
                ),
                loader_ns=_between(start.loader_ns, end.loader_ns),
            )
            for index, (start, end) in enumerate(
                zip(self._boundaries, self._boundaries[1:], strict=False)
            )
        ]

    def _device_steps(self) -> list[_DeviceStep]:
        """The steps as the device did them; none where it was not asked, or has failed.

        An event says how far it is from another, not when it was. So one more is put on the
        stream and waited for: that one is now, and the others lie so long before it.
        """
        if len(self._events) < 2:
            return []
        try:
            now = StreamMoment()
            now.wait()
            now_ns = self._unix.now_ns()
            return [
                _DeviceStep(now_ns - start.ns_until(now), start.ns_until(end))
                for start, end in zip(self._events, self._events[1:], strict=False)
            ]
        except RuntimeError:
            # A program that ends by an error of its device still has the host's times.
            return []


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start
