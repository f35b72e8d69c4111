"""How what comes from gpuprof is called in a tracker that holds other things too."""

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "gpuprof"


def prefixed(figures: Mapping[str, float]) -> dict[str, float]:
    """`figures` in a group of their own: "gpuprof/mfu"."""
    return {f"{PREFIX}/{name}": value for name, value in figures.items()}
