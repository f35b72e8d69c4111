"""Reads files on workers of Dask: some on this machine, or those of a cluster that runs."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from gpuprof._version import __version__
from gpuprof.collectors.distribution import with_extra
from gpuprof.collectors.errors import CommandError, MissingDependencyError, describe, reason
from gpuprof.collectors.files.temporary import temporary_folder
from gpuprof.profiler.cluster.outcome import Outcome, ReadFile, read_outcome

# After a failure that another try may mend, such as of a network.
_RETRIES: Final = 2
# What the names of our tasks begin with.
_KEY: Final = "gpuprof-"
_CONNECT_S: Final = 30
# Workers read a file each: threads of their own would only take turns.
_WORKER_ENVIRONMENT: Final = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
# Of workers here. By default each notes a hundred times a second what its task calls and keeps that
# for an hour, which took a sixth of the time and 0.2 MB a file; and scheduler and workers look
# fifty times a second whether they are late, which took a tenth of a core.
_CONFIGURATION: Final = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
}


@contextmanager
def local_workers(count: int) -> Iterator[Any]:
    """A client of `count` worker processes on this machine, which end with the context.

    A worker that takes more than its part of the machine's memory is ended, and started again.
    """
    distributed = _distributed()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    import dask

    with (
        dask.config.set(_CONFIGURATION),
        temporary_folder("workers") as folder,
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            # Its server cannot be left out: on this machine alone, on any free port.
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            local_directory=str(folder),
            env=_WORKER_ENVIRONMENT,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def workers_of(address: str) -> Iterator[Any]:
    """A client of the scheduler at `address`, whose workers have this gpuprof.

    Raises `CommandError` where no scheduler answers, or its workers have another gpuprof or none.
    """
    distributed = _distributed()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(address, timeout=_CONNECT_S)
    except (OSError, ValueError, TimeoutError) as error:
        raise CommandError(f"--cluster {address}: no scheduler answers: {reason(error)}") from error
    with client:
        _check_workers(client, address)
        yield client


def read_on_workers(read: ReadFile, places: Sequence[str], client: Any) -> Iterator[Outcome]:
    """The outcome of each of `places`, in the order in which they are done.

    A worker reads one file at a time and holds a result only until it is handed on. The files of a
    lost worker are given to others. Raises `CommandError` where the cluster is lost.
    """
    suspected = []
    for outcome, fell in _read_all(read, places, client):
        if fell:
            suspected.append(outcome)
        else:
            yield outcome
    # A worker has the next file already while it reads one: which was the reason shows alone.
    for outcome in suspected:
        yield from (each for each, _ in _read_all(read, [outcome.place], client))


def lost_workers(client: Any) -> list[tuple[str, ...]]:
    """For each worker that was lost with work, the places that it had."""
    return [
        places
        for _, event in client.get_events("all")
        if event.get("action") == "remove-worker" and not event.get("expected")
        if (places := _places(event.get("processing-tasks", ())))
    ]


def _read_all(read: ReadFile, places: Sequence[str], client: Any) -> Iterator[tuple[Outcome, bool]]:
    """Each outcome, and whether it is that workers were lost."""
    from distributed import as_completed

    place_of = {}
    for place in places:
        key = f"{_KEY}{uuid4().hex}-{place}"
        # A result that is kept for an equal call of before may be of other content.
        future = client.submit(read_outcome, read, place, key=key, retries=_RETRIES, pure=False)
        place_of[future] = place
    done = as_completed(list(place_of))  # type: ignore[no-untyped-call]  # distributed's own
    for future in done:
        yield _outcome(future, place_of.pop(future))
        future.release()


def _outcome(future: Any, place: str) -> tuple[Outcome, bool]:
    from distributed import KilledWorker

    try:
        return future.result(), False
    except KilledWorker:
        return Outcome(place, problem="each worker that read it was lost"), True
    except Exception as error:
        if future.cancelled():
            raise CommandError("the scheduler of the cluster was lost") from error
        return Outcome(place, problem=describe(error)), False


def _places(keys: Iterable[str]) -> tuple[str, ...]:
    own = (key.removeprefix(_KEY) for key in keys if key.startswith(_KEY))
    return tuple(sorted(key.partition("-")[2] for key in own))


def _check_workers(client: Any, address: str) -> None:
    # A worker that is lost meanwhile says nothing of the others.
    answers = client.run(_gpuprof_version, on_error="return").values()
    missing = next((each for each in answers if isinstance(each, ModuleNotFoundError)), None)
    if missing is not None:
        raise CommandError(
            f"--cluster {address}: its workers lack {missing.name}; install gpuprof {__version__} "
            "where they run"
        ) from missing
    others = sorted({each for each in answers if isinstance(each, str) and each != __version__})
    if others:
        raise CommandError(
            f"--cluster {address}: its workers have gpuprof {', '.join(others)}, this is "
            f"{__version__}"
        )


def _gpuprof_version() -> str:
    return __version__


def _distributed() -> Any:
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "dask distributed", "read ranks on workers", with_extra("cluster")
        ) from error
    return distributed
