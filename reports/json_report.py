"""Results as JSON: exactly their structs, for other programs."""

from collections.abc import Sequence

import msgspec


def render_json(result: msgspec.Struct | Sequence[msgspec.Struct]) -> str:
    """The whole of it, indented. Unknown is null; there is no NaN in it."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n"
