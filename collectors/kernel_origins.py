"""What kernels that torch.compile generated are made of, as captures hold it."""

from collections.abc import Iterable

import msgspec


class KernelOrigin(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operator of the program in a generated kernel, and where the program calls it."""

    # As the program's graph has it: aten::gelu.
    operator: str
    # Its columns of gpuprof.collectors.schema.OPS; None where not known.
    module: str | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    function_line: int | None = None


_DECODER = msgspec.json.Decoder(tuple[KernelOrigin, ...])


def encode_origins(origins: Iterable[KernelOrigin]) -> str:
    """The JSON text of a list of them."""
    return msgspec.json.encode(tuple(origins)).decode()


def decode_origins(text: str) -> tuple[KernelOrigin, ...]:
    """The list in `text`. Raises `msgspec.MsgspecError` where it is none."""
    return _DECODER.decode(text)
