"""Code in C for what Python is too slow for. All of it is there in Python too."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuprof.collectors.native import _native as compiled
else:
    try:
        from gpuprof.collectors.native import _native as compiled
    except ImportError:
        # Installed from source where there is no compiler (setup.py).
        compiled = None
