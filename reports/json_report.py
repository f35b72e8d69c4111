"""The analysis as JSON: exactly `gpuprof.roofline.analysis.Analysis`, for other programs."""

import msgspec

from gpuprof.roofline.analysis import Analysis


def render_json(analysis: Analysis) -> str:
    """The whole analysis, indented. Unknown is null; there is no NaN in it."""
    return msgspec.json.format(msgspec.json.encode(analysis), indent=1).decode() + "\n"
