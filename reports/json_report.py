"""An analysis or a comparison as JSON: exactly its structs, for other programs."""

import msgspec

from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.comparison.result import Comparison


def render_json(result: Analysis | Comparison) -> str:
    """The whole of it, indented. Unknown is null; there is no NaN in it."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n"
