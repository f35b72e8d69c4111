"""Tests of the checkout itself: a source distribution has its files elsewhere."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_checkout = pytest.mark.skipif(
    not (ROOT / "roofline").is_dir(),
    reason="not a checkout: the sources are in src/gpuprof",
)
