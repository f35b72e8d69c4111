"""plotly's bundle as it stands in a page: compressed, since it is most of the file."""

import base64
import gzip
from functools import cache

from markupsafe import Markup
from plotly.offline import get_plotlyjs


@cache
def embedded_plotly() -> Markup:
    """The bundle as gzip in base64: nothing in it can end a script element."""
    # Without a time of its own: the same analysis gives the same bytes.
    packed = gzip.compress(get_plotlyjs().encode(), mtime=0)
    return Markup(base64.b64encode(packed).decode())
