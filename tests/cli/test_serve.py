"""`gpuprof serve`: pages of a folder for a browser of this machine, and for nobody else."""

import html
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urljoin, urlsplit

import pytest

from gpuprof.collectors import storage
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.serving.folder import CapturesFolder
from gpuprof.profiler.serving.server import PagesServer
from gpuprof.reports.html.listing import ListedCapture, render_listing
from gpuprof.reports.html.page import render_html
from gpuprof.reports.html.templating import PageLink

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
BASE, HEAD = "h100_attention_base", "h100_attention_head"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two captures, one of them in a folder of its own, and what is none."""
    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(CAPTURES / BASE, folder / "a&b")
    shutil.copytree(CAPTURES / HEAD, folder / "today" / HEAD)
    (folder / "broken").mkdir()
    shutil.copy(CAPTURES / BASE / storage.MANIFEST_FILE, folder / "broken")
    (folder / "notes").mkdir()
    outside = tmp_path_factory.mktemp("outside")
    shutil.copytree(CAPTURES / BASE, outside / "secret")
    (folder / "link").symlink_to(outside)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PagesServer]:
    with PagesServer(CapturesFolder(folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: PagesServer, path: str, *, method: str = "GET", host: str | None = None
) -> tuple[int, str]:
    """The status and the text of the answer to a request for `path`, as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def below(server: PagesServer, place: str) -> str:
    return f"/{server.token}/{place}"


def test_the_list_has_each_capture_and_says_which_cannot_be_read(server: PagesServer) -> None:
    status, text = ask(server, below(server, ""))
    assert status == 200
    assert 'href="capture/a%26b"' in text
    assert f'href="capture/today/{HEAD}"' in text
    assert "process.json: No such file or directory" in text
    assert "secret" not in text
    assert 'href="history"' not in text
    # The newest is compared with the one before it, unless somebody chooses.
    assert text.count(" checked>") == 2


def test_a_page_and_a_comparison_are_those_of_the_commands(
    server: PagesServer, folder: Path
) -> None:
    status, text = ask(server, below(server, "capture/a%26b"))
    home = PageLink("All captures", "../")
    assert (status, text) == (200, render_html(load_analysis(folder / "a&b"), (home,)))
    status, text = ask(server, below(server, f"compare?base=a%26b&head=today/{HEAD}"))
    assert status == 200
    assert "gpuprof compare" in text


def test_pages_lead_to_each_other(server: PagesServer) -> None:
    def links(place: str) -> dict[str, str]:
        """Where the links of a page lead, as a browser takes them."""
        at = below(server, place)
        _, text = ask(server, at)
        (around,) = re.findall(r'<nav class="around".*?</nav>', text, re.DOTALL)
        found = re.findall(r'<a href="([^"]*)">([^<]*)</a>', around)
        return {html.unescape(name): urljoin(at, html.unescape(where)) for where, name in found}

    home = below(server, "")
    assert links(f"capture/today/{HEAD}") == {"All captures": home}
    assert links("capture/no/such") == {"All captures": home}
    found = links(f"compare?base=a%26b&head=today/{HEAD}")
    assert found["All captures"] == home
    assert found["a&b"] == below(server, "capture/a%26b")
    assert found[f"today/{HEAD}"] == below(server, f"capture/today/{HEAD}")
    swapped = urlsplit(found["The other way round"])
    assert swapped.path == below(server, "compare")
    assert parse_qs(swapped.query) == {"base": [f"today/{HEAD}"], "head": ["a&b"]}


def test_the_list_begins_with_the_capture_that_was_made_last(folder: Path) -> None:
    """Not with the one that was copied here last."""
    rows = CapturesFolder(folder).listing()
    text = render_listing("runs", list(reversed(rows)), has_history=False)
    named = re.findall(r'<a href="capture/([^"]*)"', text)
    assert re.findall(r'name="head" value="([^"]*)"[^>]* checked', text) == [
        html.unescape(named[0]).replace("%26", "&").replace("&", "&amp;")
    ]
    made = {name: load_analysis(folder / name).created_ns for name in ("a&b", f"today/{HEAD}")}
    assert [unquote(html.unescape(name)) for name in named] == sorted(made, key=lambda n: -made[n])


@pytest.mark.parametrize(
    ("place", "status", "sentence"),
    [
        ("compare", 400, "hoose a base and a head"),
        ("compare?base=a%26b&head=nothing", 404, "there is no such capture"),
        ("capture/broken", 404, "process.json"),
        ("capture/today", 404, "there is no such capture"),
        ("capture/link/secret", 404, "there is no such capture"),
        ("capture/../a%26b", 404, "there is no such capture"),
        ("capture/%2e%2e/%2e%2e/etc/passwd", 404, "there is no such capture"),
        ("capture/<script>alert(1)</script>", 404, "&lt;script&gt;"),
        ("history", 404, "there is no history"),
        ("other", 404, "Not Found"),
    ],
)
def test_what_is_not_there_is_one_line(
    server: PagesServer, place: str, status: int, sentence: str
) -> None:
    found, text = ask(server, below(server, place))
    assert found == status
    assert sentence in text
    assert "<script>alert" not in text


def test_others_learn_nothing(server: PagesServer, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    for path in ("/", "/wrong/", f"/{server.token[:-1]}/", f"/{server.token}", "*", "//x/"):
        status, text = ask(server, path)
        assert (status, "a&amp;b" in text) == (404, False)
    # Another site's name that now leads here.
    assert ask(server, below(server, ""), host=f"evil.example:{server.server_port}")[0] == 404
    assert ask(server, below(server, ""), host="127.0.0.1")[0] == 404
    assert ask(server, below(server, ""), method="POST")[0] == 501
    assert ask(server, below(server, ""), method="HEAD") == (200, "")
    assert sorted(folder.rglob("*")) == before
    assert server.server_address[0] == "127.0.0.1"


def test_as_a_command_it_prints_the_address_and_ends_with_an_interrupt(folder: Path) -> None:
    command = [sys.executable, "-m", "gpuprof", "serve", str(folder), "--open"]
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    environment.pop("BROWSER", None)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        connection = http.client.HTTPConnection(address.netloc, timeout=60)
        connection.request("GET", address.path)
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        _, notes = process.communicate(timeout=60)
    assert process.returncode == 0
    assert notes.splitlines() == [
        f"gpuprof: 3 captures in {folder}; Ctrl-C ends it",
        "gpuprof: no browser can open it here",
    ]


def test_no_folder_and_a_port_that_is_taken_are_one_line(
    tmp_path: Path, server: PagesServer
) -> None:
    for arguments, line in (
        (["nowhere"], "gpuprof: nowhere is not a folder"),
        (["--port", str(server.server_port)], "choose another --port"),
    ):
        result = subprocess.run(
            [sys.executable, "-m", "gpuprof", "serve", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (result.returncode, result.stdout) == (1, "")
        assert line in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_the_base_is_the_capture_of_the_same_program_before_the_newest() -> None:
    rows = [
        ListedCapture(name=name, title=title, created_ns=created)
        for name, title, created in (("a", "train.py", 1), ("b", "x.py", 2), ("c", "train.py", 3))
    ]
    broken = ListedCapture(name="d", problem="cannot be read")

    def checked(shown: list[ListedCapture]) -> list[tuple[str, str]]:
        text = render_listing("runs", shown, has_history=False)
        return re.findall(r'name="(base|head)" value="(\w)"[^>]* checked', text)

    assert sorted(checked([*rows, broken])) == [("base", "a"), ("head", "c")]
    assert sorted(checked(rows[:2])) == [("base", "a"), ("head", "b")]
    assert checked(rows[:1]) == [("head", "a")]
    assert checked([broken]) == []
