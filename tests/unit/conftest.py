"""A way to write small captures down."""

import os

import pytest
from capture_builder import CaptureBuilder

# Triton asks when a kernel is defined, so before any test imports one: no GPU is needed.
os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def build() -> CaptureBuilder:
    """An empty capture to write rows into."""
    return CaptureBuilder()
