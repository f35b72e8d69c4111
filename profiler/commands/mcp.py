"""`gpuprof mcp`."""

import argparse
from pathlib import Path

from gpuprof.collectors.distribution import with_extra
from gpuprof.collectors.errors import CommandError, MissingDependencyError


class McpCommand:
    """Answer an agent's questions about the captures of a folder.

    It speaks the Model Context Protocol on stdin and stdout, for a client that
    starts it: list of captures, summary, advice, figures, explanation of an
    operator, comparison. Nothing is written.
    """

    name = "mcp"
    summary = "answer an agent's questions about captures (Model Context Protocol)"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument(
            "folder", type=Path, nargs="?", default=Path(), help="where captures lie (here)"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Ends with stdin. Raises `CommandError` where it cannot begin."""
        if not arguments.folder.is_dir():
            raise CommandError(f"{arguments.folder} is not a folder")
        try:
            from gpuprof.profiler.agent.server import make_server
        except ImportError as error:
            raise MissingDependencyError(
                "mcp", "speak the Model Context Protocol", with_extra("agent")
            ) from error
        make_server(arguments.folder).run("stdio")
        return 0
