"""What this tool is installed as. It is imported, and called, as `gpuprof`."""

import shlex
from typing import Final, Literal

DISTRIBUTION: Final = "gpuprof-roofline"
Extra = Literal["agent", "cluster", "cuda", "cuda12", "ncu", "notebook", "png"]


def with_extra(extra: Extra) -> str:
    """The requirement that brings the packages of an extra: "gpuprof-roofline[cuda]"."""
    return f"{DISTRIBUTION}[{extra}]"


def install_command(*requirements: str) -> str:
    """The line for a shell that installs `requirements`: "pip install 'gpuprof-roofline[cuda]'"."""
    return shlex.join(("pip", "install", *requirements))
