"""What pyproject.toml cannot say: README.md as the package index shows it.

The project has no public address yet, so a link to a file of the repository leads nowhere there. It
becomes the file's path, which is one in the source distribution (docs/decisions/0027).
"""

import re
from pathlib import Path

from setuptools import setup

_REPOSITORY_ONLY = re.compile(r"<!-- repository only -->\n.*?<!-- end -->\n+", re.DOTALL)
_RELATIVE_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?!\w+://)(?P<path>[^)#]+)(?:#[^)]*)?\)")
_NOTE = "Paths such as docs/run.md are files in the source distribution of this package.\n"


def package_page(readme: str) -> str:
    """`readme` without pictures and links that need the repository beside it."""
    text = _REPOSITORY_ONLY.sub("", readme)
    return _RELATIVE_LINK.sub(r"\g<text> (\g<path>)", text) + "\n" + _NOTE


setup(
    long_description=package_page(Path("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
