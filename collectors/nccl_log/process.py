"""What the lines of one process say, gathered line by line."""

from collections import deque
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from typing import Any, Final

from gpuprof.collectors.collective_dtypes import element_bytes
from gpuprof.collectors.communicators import ChosenAlgorithm, Communicator, Transport
from gpuprof.collectors.nccl_log import patterns

# Of calls the last are kept, as a flight recorder does; of others the first.
_MOST_CALLS: Final = 20_000
_MOST: Final = 1000
_LONGEST_WARNING: Final = 300
# What is kept of one log takes about 100 bytes a unit. Of a job of 1,000 ranks it is 300,000.
_UNITS: Final = 2_000_000
_UNITS_OF_A_PROCESS: Final = 40
_UNITS_OF_A_COMMUNICATOR: Final = 20
_UNITS_OF_A_FACT: Final = 5


class Room:
    """What may still be kept of all processes of one log."""

    def __init__(self) -> None:
        self._left = _UNITS

    def take(self, units: int) -> bool:
        """Whether there is room for so many more, which are then taken."""
        if units > self._left:
            return False
        self._left -= units
        return True

    def process(self) -> "LoggedProcess | None":
        """A new one; None where there is no room."""
        return LoggedProcess(self) if self.take(_UNITS_OF_A_PROCESS) else None


@dataclass
class _Communicator:
    """One communicator while its lines are read."""

    rank: int | None = None
    ranks: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    # By name and whether the network card reads the GPU's memory: channels, and peers.
    transports: dict[tuple[str, bool | None], tuple[int, set[int]]] = field(default_factory=dict)
    chosen: dict[tuple[str, int, str, str, int | None], int] = field(default_factory=dict)


class LoggedProcess:
    """One process of the log: a host and a process id."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.communicators: dict[str, _Communicator] = {}
        self.calls: deque[dict[str, Any]] = deque(maxlen=_MOST_CALLS)
        self._facts: dict[str, Any] = {}
        self._warnings: dict[str, None] = {}
        self._settings: dict[str, str] = {}
        # The communicator that a thread initialises.
        self._of_thread: dict[str, _Communicator] = {}
        # What a thread of another task says, where there are several communicators.
        self._unassigned = _Communicator()

    def warn(self, text: str) -> None:
        """Take in a warning."""
        text = text[:_LONGEST_WARNING]
        if text and text not in self._warnings and self._has_place(self._warnings):
            self._warnings[text] = None

    def _has_place(self, known: Sized, units: int = _UNITS_OF_A_FACT) -> bool:
        """Whether one more goes into `known`."""
        return len(known) < _MOST and self._room.take(units)

    def read(self, thread: str, text: str) -> None:
        """Take in a line's text. What has no meaning here is nothing."""
        if " via " in text and (found := patterns.CONNECTION.match(text)):
            self._connection(thread, found.groupdict())
        elif " Bytes -> " in text:
            self._choice(text)
        elif ": opCount " in text and (found := patterns.CALL.match(text)):
            self._call(found.groupdict())
        elif "comm 0x" in text and (found := patterns.COMMUNICATOR.search(text)):
            self._communicator(thread, found.groupdict())
        else:
            self._fact(thread, text)

    def _fact(self, thread: str, text: str) -> None:
        if found := patterns.VERSION.search(text):
            self._facts["version"] = found[1]
        elif found := patterns.NETWORK.match(text):
            self._facts["network"] = found[1]
        elif found := patterns.NETWORK_DEVICES.match(text):
            devices = patterns.NETWORK_DEVICE.findall(found[1])
            self._facts["network_devices"] = tuple(devices[:_MOST])
        elif found := patterns.NVLS.match(text):
            self._facts["nvls"] = found[1] is None
        elif found := patterns.SETTING.match(text):
            if found[1] in self._settings or self._has_place(self._settings):
                self._settings[found[1]] = found[2]
        elif found := patterns.CHANNELS.match(text) or patterns.RCCL_CHANNELS.match(text):
            channels, nvls, point_to_point = found.groups()
            self._at(thread).facts |= {
                "channels": int(channels),
                "nvls_channels": None if nvls is None else int(nvls),
                "point_to_point_channels": int(point_to_point),
            }
        elif found := patterns.RING.match(text):
            self._at(thread).facts["rings"] = int(found[1])
        elif found := patterns.TREES.match(text):
            self._at(thread).facts["trees"] = found[1].count("[")

    def _at(self, thread: str) -> _Communicator:
        """The communicator that a line of `thread` is about."""
        if thread in self._of_thread:
            return self._of_thread[thread]
        if len(self.communicators) == 1:
            return next(iter(self.communicators.values()))
        return self._unassigned

    def _communicator(self, thread: str, found: dict[str, str | None]) -> None:
        pointer = found["pointer"] or ""
        if pointer not in self.communicators:
            if not self._has_place(self.communicators, _UNITS_OF_A_COMMUNICATOR):
                return
            self.communicators[pointer] = _Communicator()
        one = self.communicators[pointer]
        one.rank, one.ranks = int(found["rank"] or 0), int(found["ranks"] or 0)
        for name in ("hosts", "device"):
            if found[name]:
                one.facts[name] = int(found[name] or 0)
        if found["identity"]:
            one.facts["identity"] = found["identity"]
        if found["state"] == patterns.COMPLETE:
            one.facts["initialised"] = True
        if thread in self._of_thread or self._room.take(1):
            self._of_thread[thread] = one

    def _connection(self, thread: str, found: dict[str, str | None]) -> None:
        one = self._at(thread)
        name, gpu_direct = found["transport"] or "", None
        if name.startswith("NET/"):
            gpu_direct = "/GDRDMA" in name
            name = "/".join(name.split("/")[:2])
        source, target = int(found["source"] or 0), int(found["target"] or 0)
        peer = source if found["way"] == "receive" or source != one.rank else target
        key = (name.split(" ")[0], gpu_direct)
        if key not in one.transports:
            if not self._has_place(one.transports):
                return
            one.transports[key] = (0, set())
        connections, peers = one.transports[key]
        if peer not in peers and self._room.take(1):
            peers.add(peer)
        one.transports[key] = (connections + 1, peers)

    def _choice(self, text: str) -> None:
        if found := patterns.CHOSEN.match(text):
            channels: int | None = int(found["high"]) - int(found["low"]) + 1
            protocol = found["protocol"]
        elif found := patterns.CHOSEN_SYMMETRIC.search(text):
            channels, protocol = int(found["channels"]), ""
        else:
            return
        # It names no communicator.
        several = len(self.communicators) != 1
        one = self._unassigned if several else next(iter(self.communicators.values()))
        key = (
            found["collective"],
            int(found["bytes"]),
            found["algorithm"],
            protocol,
            channels,
        )
        if key in one.chosen or self._has_place(one.chosen):
            one.chosen[key] = one.chosen.get(key, 0) + 1

    def _call(self, found: dict[str, str | None]) -> None:
        collective, dtype = found["collective"] or "", patterns.DTYPES.get(found["dtype"] or "")
        known = self.communicators.get(found["pointer"] or "")
        size = element_bytes().get(dtype or "")
        message = None
        if size is not None and collective in (*patterns.OF_MESSAGES, *patterns.OF_SHARES):
            shares = int(found["ranks"] or 0) if collective in patterns.OF_SHARES else 1
            message = int(found["elements"] or 0) * size * shares
        if known is None or collective in ("Send", "Recv"):
            return
        self.calls.append(
            {
                "group": known.facts.get("identity", ""),
                "sequence": int(found["count"] or "0", 16),
                "point_to_point": False,
                "backend": "nccl",
                "collective": collective,
                "input_sizes": f"[[{int(found['elements'] or 0)}]]",
                "output_sizes": "[]",
                "dtype": dtype,
                "message_bytes": message if message is None or message < 1 << 62 else None,
                "communicator_rank": known.rank,
            }
        )

    def keep_calls(self, most: int) -> None:
        """Of its calls the last `most`."""
        self.calls = deque(tuple(self.calls)[-most:], maxlen=_MOST_CALLS)

    def ranks(self) -> tuple[int, ...]:
        """Its ranks in the largest of its communicators: of one process for each GPU, one."""
        largest = max((one.ranks or 0 for one in self.communicators.values()), default=0)
        return tuple(
            sorted(
                {
                    one.rank
                    for one in self.communicators.values()
                    if one.ranks == largest and one.rank is not None
                }
            )
        )

    def world_size(self) -> int:
        """Of the largest of its communicators."""
        return max((one.ranks or 0 for one in self.communicators.values()), default=0)

    def of_rank(self, rank: int) -> Iterator[Communicator]:
        """The communicators of `rank`, one of `ranks`, and what is of no certain one."""
        alone = len(self.ranks()) == 1
        for one in self.communicators.values():
            if alone or one.rank == rank:
                yield self._told(one)
        if self._unassigned.transports or self._unassigned.chosen:
            yield self._told(self._unassigned)

    def _told(self, one: _Communicator) -> Communicator:
        return Communicator(
            **{**self._facts, **one.facts},
            rank=one.rank,
            ranks=one.ranks,
            transports=tuple(
                Transport(name=name, connections=count, peers=len(peers), gpu_direct=direct)
                for (name, direct), (count, peers) in one.transports.items()
            ),
            chosen=tuple(
                ChosenAlgorithm(
                    collective=collective,
                    message_bytes=size,
                    algorithm=algorithm,
                    protocol=protocol,
                    channels=channels,
                    calls=calls,
                )
                for (collective, size, algorithm, protocol, channels), calls in one.chosen.items()
            ),
            warnings=tuple(self._warnings),
            settings=tuple(f"{name}={value}" for name, value in self._settings.items()),
        )
