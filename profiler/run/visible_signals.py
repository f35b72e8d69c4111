"""What a program sees of `signal` while handlers of ours are hidden from it."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def program_sees(
    set_handler: Callable[[int, Any], Any], get_handler: Callable[[int], Any]
) -> Iterator[None]:
    """Within this context `signal.signal` and `signal.getsignal` are these."""
    module: Any = signal
    before = module.signal, module.getsignal
    module.signal, module.getsignal = set_handler, get_handler
    try:
        yield
    finally:
        module.signal, module.getsignal = before
