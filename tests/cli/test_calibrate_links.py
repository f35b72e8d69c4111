"""`gpuprof calibrate` by two processes as torchrun starts them: collectives over gloo."""

import os
import subprocess
from pathlib import Path

import msgspec
from fork_server import ForkServer
from json_documents import read_answer

from gpuprof.collectors.link_calibration import LinkCalibration
from gpuprof.roofline.bus_bandwidth import COLLECTIVES


def test_two_ranks_measure_collectives_and_rank_0_shows_and_keeps_them(
    tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer
) -> None:
    port = str(20000 + os.getpid() % 20000)
    ranks = [
        subprocess.Popen(
            [*server.command, "-m", "gpuprof", "calibrate", "--device", "cpu", "--json", "l.json"],
            cwd=tmp_path,
            env={
                **gpuprof_environment,
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "WORLD_SIZE": "2",
                "RANK": rank,
                "LOCAL_RANK": rank,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    (shown, errors), (other, more_errors) = (rank.communicate(timeout=200) for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0, 0], errors + more_errors
    # Rank 0 alone prints.
    assert not other
    assert "2 ranks, gloo" in shown
    assert "Lines through the times" in shown
    assert "ring hop*" in shown
    assert read_answer((tmp_path / "l.json").read_bytes())["schema"]["name"] == "calibrate_links"
    found = msgspec.json.decode((tmp_path / "l.json").read_bytes(), type=LinkCalibration)
    assert tuple(one.collective for one in found.collectives) == COLLECTIVES
    for one in found.collectives:
        assert (one.backend, one.ranks, one.hosts, one.algorithm) == ("gloo", 2, 1, "")
        sizes = [size for size, _ in one.times]
        assert sizes == sorted(sizes)
        assert one.times[0][1] > 0
    # Times are of calls: more bytes take longer, in sum, whatever else has the cores for a while.
    assert sum(one.times[-1][1] - one.times[0][1] for one in found.collectives) > 0
    (kept,) = (tmp_path / "cache" / "gpuprof").glob("links-*.json")
    assert msgspec.json.decode(kept.read_bytes(), type=LinkCalibration) == found
    assert f"Kept in {kept}" in shown.replace("\n", "")
