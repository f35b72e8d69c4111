"""What another thread sees of the main thread."""

import hashlib
import sys
import threading
import time
from collections.abc import Callable

import pytest

from gpuprof.profiler.run.main_thread import is_main_thread_asleep

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def compute() -> None:
    """Work in C, where the interpreter is free for others."""
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 200_000)


@linux
@pytest.mark.parametrize(
    ("main", "looks"), [(compute, {False}), (lambda: time.sleep(0.2), {True})], ids=["work", "wait"]
)
def test_a_thread_that_works_is_told_from_one_that_waits(
    main: Callable[[], None], looks: set[bool]
) -> None:
    seen: list[bool] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.005):
            seen.append(is_main_thread_asleep())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(3):
            main()
    finally:
        done.set()
        thread.join()
    # Between two calls it may be in either state.
    assert looks <= set(seen)
