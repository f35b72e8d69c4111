"""Where this machine has Chromium, or a browser that takes the same options."""

import os
import shutil
from pathlib import Path

import pytest

_NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    *("chrome", "chrome-headless-shell", "microsoft-edge"),
)
# Where they are installed without being on PATH.
_PLACES = (
    Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
    Path("/Applications/Chromium.app/Contents/MacOS/Chromium"),
)


def find_browser() -> str | None:
    """Its path: what the variable CHROME_BIN names, else on PATH, else where it is installed."""
    named = os.environ.get("CHROME_BIN")
    found = next(filter(None, map(shutil.which, (named, *_NAMES) if named else _NAMES)), None)
    return found or next((str(place) for place in _PLACES if place.exists()), None)


CHROMIUM = find_browser()
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
