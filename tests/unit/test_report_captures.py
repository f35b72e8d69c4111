"""The stored analysis of a capture."""

from pathlib import Path

import msgspec
import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.manifest import Manifest, ProcessInfo
from gpuprof.profiler.captures import load_analysis, read_stored_analysis
from gpuprof.roofline.analysis import ANALYSIS_FILE, ANALYSIS_SCHEMA_VERSION, Analysis


def test_the_stored_analysis_is_used(tmp_path: Path, training_analysis: Analysis) -> None:
    (tmp_path / ANALYSIS_FILE).write_bytes(msgspec.json.encode(training_analysis))
    assert load_analysis(tmp_path) == training_analysis


def test_another_schema_is_not_read(tmp_path: Path) -> None:
    newer = {"schema_version": ANALYSIS_SCHEMA_VERSION + 1, "kernels": "of another form"}
    (tmp_path / ANALYSIS_FILE).write_bytes(msgspec.json.encode(newer))
    assert read_stored_analysis(tmp_path) is None


def test_without_a_stored_analysis_it_is_made_from_the_tables(tmp_path: Path) -> None:
    manifest = Manifest(tool_version="0.1.0", source="gpuprof run", title="a.py", created_ns=1)
    storage.save(Capture(manifest, (ProcessInfo(),)), tmp_path / "a.gpuprof")
    analysis = load_analysis(tmp_path / "a.gpuprof")
    assert (analysis.title, analysis.kernels) == ("a.py", ())
    assert not (tmp_path / "a.gpuprof" / ANALYSIS_FILE).exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"schema_version": %d}' % ANALYSIS_SCHEMA_VERSION, b"\xff"]
)
def test_a_broken_file_is_named_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ANALYSIS_FILE).write_bytes(content)
    with pytest.raises(CaptureError, match=r"analysis\.json: .*delete it"):
        load_analysis(tmp_path)


def test_no_capture_at_all(tmp_path: Path) -> None:
    assert read_stored_analysis(tmp_path / "absent") is None
