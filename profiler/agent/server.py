"""The server of `gpuprof mcp`: tools of the Model Context Protocol over stdin and stdout."""

from pathlib import Path
from typing import Any

from mcp.server import MCPServer

from gpuprof._version import __version__
from gpuprof.profiler.agent.answers import CaptureAnswers

_INSTRUCTIONS = (
    "Captures of PyTorch programs, analysed by gpuprof. Begin with `captures` and `summary`. Each "
    "answer has `answer`, or `cannot_answer` with reason and remedy: then nothing is known, so do "
    "not guess. Gains are of one step and have a range. Nothing is written."
)


def make_server(folder: Path) -> MCPServer[Any]:
    """A server whose tools answer about the captures in `folder`."""
    answers = CaptureAnswers(folder)
    server: MCPServer[Any] = MCPServer(
        "gpuprof", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR"
    )
    for tool in (
        answers.captures,
        answers.summary,
        answers.advice,
        answers.figures,
        answers.explain,
        answers.repro,
        answers.compare,
    ):
        server.tool()(tool)
    return server
