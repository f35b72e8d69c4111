"""What pyproject.toml cannot say: README.md as the package index shows it, and code in C.

The project has no public address yet, so a link to a file of the repository leads nowhere there. It
becomes the file's path, which is one in the source distribution (docs/decisions/0027).

The code in C is optional: where it can't be compiled, Python does the same (docs/decisions/0071).
"""

import re
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

_REPOSITORY_ONLY = re.compile(r"<!-- repository only -->\n.*?<!-- end -->\n+", re.DOTALL)
_RELATIVE_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?!\w+://)(?P<path>[^)#]+)(?:#[^)]*)?\)")
_NOTE = "Paths such as docs/run.md are files in the source distribution of this package.\n"


def package_page(readme: str) -> str:
    """`readme` without pictures and links that need the repository beside it."""
    text = _REPOSITORY_ONLY.sub("", readme)
    return _RELATIVE_LINK.sub(r"\g<text> (\g<path>)", text) + "\n" + _NOTE


# One build for all releases from 3.11 on: 3.10's stable interface has no buffers, and that of an
# interpreter without its lock is another.
_STABLE = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
_NATIVE = "src/gpuprof/collectors/native"

setup(
    ext_modules=[
        Extension(
            "gpuprof.collectors.native._native",
            sources=[f"{_NATIVE}/{name}.c" for name in ("intervals", "module", "trace_events")],
            depends=[f"{_NATIVE}/{name}.h" for name in ("intervals", "trace_events")],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if _STABLE else [],
            py_limited_api=_STABLE,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if _STABLE else {},
    long_description=package_page(Path("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
