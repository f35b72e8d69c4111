"""What the name of a kernel tells, in words."""

from collections.abc import Iterator

from gpuprof.roofline.kernel_names.decode import KernelName

_FUNCTIONS = {"gemm": "matrix product", "indexing": "indexing or embedding"}


def name_in_words(name: KernelName) -> str:
    """ "cuBLAS: matrix product, bf16, tile 256x128x64, 4 stages, cluster 1x2, layout NN"."""
    parts = ", ".join(part for part in _parts(name) if part)
    return f"{name.library}: {parts}" if name.library else parts


def name_briefly(name: KernelName) -> str:
    """What tells it from others at a glance: "cuBLAS: matrix product, bf16, tile 256x128x64"."""
    parts = ", ".join(part for part in _first_parts(name) if part)
    return f"{name.library}: {parts}" if name.library else parts


def _parts(name: KernelName) -> Iterator[str]:
    yield from _first_parts(name)
    yield f"{name.stages} stages" if name.stages else ""
    yield f"cluster {_sizes(name.cluster)}" if name.cluster else ""
    yield f"layout {name.layout}" if name.layout else ""
    yield f"head size up to {name.head_size}" if name.head_size else ""
    yield f"vectors of {name.vector_width}" if name.vector_width else ""
    yield _aligned(name.alignment)
    yield f"for {name.architecture}" if name.architecture else ""


def _first_parts(name: KernelName) -> Iterator[str]:
    function = _FUNCTIONS.get(name.function, name.function)
    yield f"{function} ({name.operation})" if name.operation else function
    yield name.direction
    yield name.algorithm
    yield f"protocol {name.protocol}" if name.protocol else ""
    yield _types(name)
    yield f"tile {_sizes(name.tile)}" if name.tile else ""


def _aligned(elements: int | None) -> str:
    if elements is None:
        return ""
    return "unaligned rows" if elements == 1 else f"rows aligned to {elements} elements"


def _types(name: KernelName) -> str:
    types = name.precision
    if name.accumulator and name.accumulator != name.precision:
        types += f" summed in {name.accumulator}"
    if name.output and name.output not in (name.precision, ""):
        types += f", written as {name.output}"
    return types


def _sizes(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
