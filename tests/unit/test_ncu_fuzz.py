"""Damaged CSV ends in a Capture or a CaptureError, never in another exception or a hang."""

import gzip
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuprof.collectors import ncu
from gpuprof.collectors.errors import CaptureError

DATA = Path(__file__).resolve().parents[1] / "data" / "ncu"
# The header and the first launches of each page.
PAGES = {
    page: b"".join(
        gzip.decompress((DATA / f"h200_targeted_{page}.csv.gz").read_bytes()).splitlines(True)[:14]
    )
    for page in ("raw", "details")
}
SHARED_FIXTURE = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def survives(path: Path, content: bytes) -> bool:
    """Whether the content is read; CaptureError is the only other way out."""
    path.write_bytes(content)
    try:
        capture = ncu.read(path)
    except CaptureError:
        return False
    assert capture.kernels.height > 0
    assert capture.counters["value"].is_finite().all()
    return True


@given(st.binary(max_size=400), st.sampled_from(sorted(PAGES)), st.data())
@SHARED_FIXTURE
def test_bytes_put_among_the_rows(
    tmp_path: Path, noise: bytes, page: str, data: st.DataObject
) -> None:
    content = PAGES[page]
    position = data.draw(st.integers(0, len(content)))
    survives(tmp_path / "noisy.csv", content[:position] + noise + content[position:])


@given(st.text(alphabet='"ID,Kernel Name\n0123456789.()=-\r\0', max_size=300))
@SHARED_FIXTURE
def test_any_rows_after_a_header(tmp_path: Path, rows: str) -> None:
    header = '"ID","Process ID","Kernel Name","Grid Size","Device","a.sum"\n"","","","","","ns"\n'
    survives(tmp_path / "rows.csv", (header + rows).encode())


@given(st.decimals(allow_nan=True, allow_infinity=True), st.integers(), st.integers())
@SHARED_FIXTURE
def test_numbers_out_of_range(tmp_path: Path, value: object, process: int, device: int) -> None:
    survives(
        tmp_path / "range.csv",
        (
            '"ID","Process ID","Kernel Name","Grid Size","Device","gpu__time_duration.sum"\n'
            f'"","","","","","s"\n"0","{process}","k","({device}, 1, 1)","{device}","{value}"\n'
        ).encode(),
    )
