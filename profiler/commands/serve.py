"""`gpuprof serve`."""

import argparse
from contextlib import suppress
from pathlib import Path

from gpuprof.collectors.errors import CommandError, problem_of


class ServeCommand:
    """Show the captures of a folder in a browser.

    There is a list, the page of each, and any two can be compared. Only this
    machine can connect, and only with the address that is printed: it holds a
    random token. Nothing is written.
    """

    name = "serve"
    summary = "show the captures of a folder in a browser of this machine"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument(
            "folder", type=Path, nargs="?", default=Path(), help="where captures lie (here)"
        )
        parser.add_argument(
            "--port", type=_port, default=0, metavar="N", help="port to listen on (any free one)"
        )
        parser.add_argument("--open", action="store_true", help="show the list in a browser")

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Ends with Ctrl-C. Raises `CommandError` where it cannot begin."""
        if not arguments.folder.is_dir():
            raise CommandError(f"{arguments.folder} is not a folder")
        from gpuprof.profiler.page_output import NO_BROWSER, show
        from gpuprof.profiler.serving.folder import CapturesFolder
        from gpuprof.profiler.serving.server import PagesServer
        from gpuprof.reports.console.streams import write_line, write_note
        from gpuprof.reports.formatting import counted

        folder = CapturesFolder(arguments.folder)
        try:
            server = PagesServer(folder, arguments.port)
        except OSError as error:
            problem = f"port {arguments.port} cannot be had: {problem_of(error)}"
            raise CommandError(f"{problem}; choose another --port") from error
        with server, suppress(KeyboardInterrupt):
            captures = counted(len(folder.names()), "capture")
            write_note(f"gpuprof: {captures} in {arguments.folder}; Ctrl-C ends it")
            # Alone on stdout, so that a script can read it.
            write_line(server.address)
            if arguments.open and not show(server.address):
                write_note(f"gpuprof: {NO_BROWSER}")
            server.serve_forever()
        return 0


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 1 to 65535")
    return int(text)
