"""Answers a browser on this machine: a list of captures, their pages, and comparisons of two.

It listens on 127.0.0.1, answers GET and HEAD alone and writes nothing. Others on the machine can
connect too, so each address begins with a random token; a page that another site has rebound to
127.0.0.1 has that site's name in `Host`, and is refused.
"""

import secrets
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from gpuprof.collectors.errors import CaptureError, CommandError, GpuprofError, describe
from gpuprof.profiler.gate.change_points import change_points_or_remark
from gpuprof.profiler.gate.history import History
from gpuprof.profiler.serving.folder import CapturesFolder
from gpuprof.reports.comparison.page import render_html as render_comparison
from gpuprof.reports.history.page import render_history
from gpuprof.reports.html.listing import render_listing, render_problem
from gpuprof.reports.html.page import render_html
from gpuprof.reports.html.templating import PageLink
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.gate.history import series_of

HOST: Final = "127.0.0.1"
# Pages hold all that they need, and lead nowhere.
_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class PagesServer(ThreadingHTTPServer):
    """Shows `folder` at `address` until it is shut down."""

    daemon_threads = True

    def __init__(self, folder: CapturesFolder, port: int = 0) -> None:
        """`port` 0 is any that is free. Raises `OSError` where it cannot be had."""
        self.folder = folder
        self.token = secrets.token_urlsafe(16)
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        """The list's URL, with the token."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing for a browser that went away meanwhile."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: PagesServer
    # Whoever connects and says nothing is not waited for for ever.
    timeout = 30

    def do_GET(self) -> None:
        """A page, or one line that says why there is none."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """The same without the page."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal shows the address, and requests hold the token."""

    def _answer(self, *, with_body: bool) -> None:
        page = self._page()
        if page is None:
            # The same for a wrong token and a wrong path: it tells nothing.
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        status, text = page
        content = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def _page(self) -> tuple[HTTPStatus, str] | None:
        if self.headers.get("Host", "") not in self._own_names():
            return None
        parts = urlsplit(self.path)
        token, slash, place = parts.path.removeprefix("/").partition("/")
        # Compared in a time that does not tell how much of it was right. Without the slash the
        # list's links would lead elsewhere.
        if not slash or not secrets.compare_digest(token.encode(), self.server.token.encode()):
            return None
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        home = PageLink("All captures", "../" * place.count("/") or "./")
        make = _page_at(self.server.folder, unquote(place), query, home)
        if make is None:
            return None
        try:
            return HTTPStatus.OK, make()
        except CaptureError as error:
            return HTTPStatus.NOT_FOUND, render_problem(describe(error), (home,))
        except GpuprofError as error:
            return HTTPStatus.BAD_REQUEST, render_problem(describe(error), (home,))

    def _own_names(self) -> tuple[str, ...]:
        port = self.server.server_port
        return f"{HOST}:{port}", f"localhost:{port}"


def _page_at(
    folder: CapturesFolder, place: str, query: dict[str, str], home: PageLink
) -> Callable[[], str] | None:
    """What makes the page at `place`, below the token; None where there is none.

    `home` leads from there to the list.
    """
    kind, _, name = place.partition("/")
    if kind == "capture" and name:
        return lambda: render_html(folder.analysis(name), (home,))
    return {
        "": lambda: render_listing(
            folder.path.absolute().name, folder.listing(), has_history=folder.history is not None
        ),
        "compare": lambda: _comparison_page(folder, query, home),
        "history": lambda: _history_page(folder, home),
    }.get(place)


def _comparison_page(folder: CapturesFolder, query: dict[str, str], home: PageLink) -> str:
    sides = [query.get(side) for side in ("base", "head")]
    if None in sides:
        raise CommandError("choose a base and a head in the list: two captures are compared")
    names = [str(name) for name in sides]
    base, head = map(folder.analysis, names)
    links = (
        home,
        *(PageLink(name, f"capture/{quote(name)}") for name in dict.fromkeys(names)),
        PageLink("The other way round", f"?{urlencode({'base': names[1], 'head': names[0]})}"),
    )
    return render_comparison(compare(base, head), links)


def _history_page(folder: CapturesFolder, home: PageLink) -> str:
    if folder.history is None:
        raise CaptureError(folder.path, "there is no history of gates in it")
    series = tuple(series_of(History(folder.history).values(metric="time")))
    changes, remark = change_points_or_remark(series)
    return render_history(series, changes or [() for _ in series], remark=remark, links=(home,))
