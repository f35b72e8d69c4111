"""`gpuprof plan` as a user types it."""

import json
import math
from pathlib import Path

import pytest

from gpuprof.profiler.cli import main

SMALL = (
    "--layers 8 --hidden 1024 --heads 16 --kv-heads 4 --ffn 2816 --vocabulary 32k --sequence 2048"
)
H100 = ["--device", "H100 SXM"]


def plan(*words: str) -> int:
    return main(["plan", *SMALL.split(), "--batch", "32", *words])


def test_the_table_names_the_fastest_layout_and_what_it_rests_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert plan(*H100, "--top", "3") == 0
    said = capsys.readouterr().out
    assert "8 x NVIDIA H100 SXM5 80GB" in said
    # Of 989.4 TFLOP/s what large products sustain, and of 450 GB/s what collectives do.
    rates = "712 TFLOP/s 72% of bf16 tensor (datasheet, dense), attention 50%, backward 37%"
    assert rates in " ".join(said.split())
    assert "356 GB/s  79% of NVLink (datasheet)" in said
    assert "1: TP " in said
    assert "launches make a real step longer" in said.replace("\n", " ")
    assert "\n4 " not in said


def test_json_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(*H100, "--json", "--tp", "2", "--pp", "1", "--zero", "1") == 0
    found = json.loads(capsys.readouterr().out)
    (layout,) = found["layouts"]
    assert (layout["tensor"], layout["data"], layout["zero"]) == (2, 4, 1)
    assert sum(layout["memory"].values()) == layout["total_bytes"]
    assert sum(layout["time"].values()) == layout["step_ns"]
    assert found["multiplied"] < found["parameters"]


def test_a_config_is_read_and_a_measured_mfu_sets_the_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 4096,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "intermediate_size": 14336,
                "vocab_size": 128256,
            }
        )
    )
    words = ["plan", str(config), "--sequence", "8192", "--batch", "64", *H100, "--mfu", "40%"]
    assert main([*words, "--json", "--tp", "1", "--pp", "1", "--zero", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == 8_030_261_248
    assert found["flops_per_s"] == pytest.approx(0.4 * 989.4e12)
    assert found["counted"] == "model"
    # The MFU has norms and activations in it. All communication but the last message overlaps.
    (layout,) = found["layouts"]
    copies = sum(layout["time"][name] for name in ("data_ns", "memory_bound_ns", "optimizer_ns"))
    (gradients,) = [row for row in layout["transfers"] if row["what"] == "gradients"]
    last_ns = gradients["time_ns"] / gradients["calls"]
    assert layout["time"]["data_ns"] == pytest.approx(last_ns, rel=1e-6)
    time = layout["step_ns"] - copies
    assert layout["mfu"] * layout["step_ns"] / time == pytest.approx(0.4)


def test_nothing_that_fits_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(*H100, "--memory", "100M", "--gpus-per-node", "1") == 1
    assert "No layout fits. The least memory: TP 1, PP 1, DP 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --device, --calibration or --capture"),
        (["--device", "nothing"], "--device: "),
        ([*H100, "--nodes", "2"], "several nodes need --network-bandwidth"),
        (["--device", "L4"], "no link between GPUs is known"),
        ([*H100, "--zero", "4"], "--zero: '4' is none of 0, 1, 2, 3"),
        ([*H100, "--checkpointing", "some"], "--checkpointing: 'some' is none of none"),
        (
            [*H100, "--tp", "8", "--pp", "3"],
            "no layout divides 8 layers, 16 heads",
        ),
        ([*H100, "--experts-per-token", "2"], "--experts-per-token is more than --experts"),
        (["missing.json", *H100], "give config.json or the model's dimensions, not both"),
        (["--calibration", "missing.json"], "missing.json"),
        (["--capture", "missing.gpuprof"], "missing.gpuprof"),
        ([*H100, "--precision", "fp32", "--mfu", "0"], "'0' is not above 0"),
        ([*H100, "--mfu", "140%"], "'140%' is more than 100%"),
    ],
)
def test_what_does_not_fit_together_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = plan(*words)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code in (1, 2)
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_file_that_is_no_config_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in {"list.json": "[]", "cut.json": '{"a":', "other.json": "{}"}.items():
        file = tmp_path / name
        file.write_text(content)
        assert main(["plan", str(file), "--sequence", "8", "--batch", "8", *H100]) == 2
        assert capsys.readouterr().err.startswith(f"gpuprof: {file}: ")
    assert main(["plan", str(tmp_path), "--sequence", "8", "--batch", "8", *H100]) == 2


def test_calibrated_rates_take_the_place_of_the_datasheets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = {"index": 0, "kind": "cuda", "name": "NVIDIA H200", "total_memory_bytes": 150 * 10**9}
    ceilings = [
        {"kind": "compute", "rate": 8e14, "precision": "bf16", "unit": "tensor"},
        {"kind": "memory", "rate": 4e12, "level": "DRAM"},
        {"kind": "link", "rate": 387e9, "level": "NVLink"},
    ]
    calibration = {
        "device": device,
        "torch": "2.11",
        "threads": None,
        "measured_ns": 0,
        "ceilings": [{"name": "", "spread": 0.0, "repeats": 7, **each} for each in ceilings],
    }
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps({"calibrations": [calibration]}))
    assert plan("--calibration", str(file), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory_bytes"] == 150 * 10**9
    assert found["flops_per_s"] == pytest.approx(0.87 * 8e14)
    assert found["link_bytes_per_s"] == pytest.approx(0.91 * 387e9)
    times = [[2**20, 60_000.0], [2**30, 4_500_000.0]]
    reduce = {"collective": "all-reduce", "backend": "nccl", "ranks": 4, "hosts": 1}
    reduce |= {"times": times, "repeats": 20, "spread": 0.0, "measured_ns": 0}
    links = tmp_path / "links.json"
    links.write_text(
        json.dumps({"device": "NVIDIA H200", "torch": "2.11", "collectives": [reduce]})
    )
    only = ("--links", str(links), "--tp", "4", "--pp", "1", "--no-sequence-parallel")
    assert plan("--calibration", str(file), *only, "--json", "--gpus-per-node", "4") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["link_bytes_per_s"] == pytest.approx(1.5 * 2**30 / 4.5e-3)
    assert found["link_basis"] == "all-reduce of 4 ranks as measured, NVIDIA H200"
    layers = found["layouts"][0]["transfers"][0]
    message = layers["total_bytes"] // layers["calls"]
    # Between the two sizes on a line of logarithms.
    share = math.log(message / 2**20) / math.log(2**10)
    each = 60_000 * (4_500_000 / 60_000) ** share
    assert layers["time_ns"] == pytest.approx(each * layers["calls"], rel=1e-6)
    assert plan("--calibration", str(file), "--links", str(file)) == 2
    assert "is no such calibration" in capsys.readouterr().err
    file.write_text('{"calibrations": []}')
    assert plan("--calibration", str(file)) == 2
    assert "has no calibration of a GPU" in capsys.readouterr().err
