"""Operands in registers of a kernel's matrix products, as ptxas left them.

ptxas 12.8, of Triton 3.6, and 12.9 gave the operands of two products of a loop the same registers,
though one of them was to last: attention was wrong on an H100, its PTX right. So attention is
compiled for sm_90 here, which needs no GPU, by each ptxas that this Triton has, and of every wgmma
operand in registers is asked what set it: one instruction, as none in these kernels comes round a
loop.
"""

import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
import triton
from versions import needs_newer_triton

_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,5})\*/\s+(?:@(!?U?P\w)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;", re.M)
# Whose first register is no result.
_NO_RESULT = re.compile(
    "ST|SYNCS|BAR|BRA|EXIT|UTMA|RED|MEMBAR|FENCE|WARP|NOP|CCTL|R2UR|ELECT|BS|RET"
)
_COPY = re.compile(r"(?:IMAD\.)?MOV(?:\.U32)? R\d+, (?:RZ, RZ, )?R(\d+)$")
_OPERAND_REGISTERS = 4


@dataclass(frozen=True)
class Instruction:
    """One line of `cuobjdump -sass`."""

    address: int
    predicate: str | None
    name: str
    arguments: str

    @property
    def results(self) -> range:
        """The registers it sets."""
        found = re.match(r"(?:U?P[T\d]\s*,\s*)*R(\d+)\b", self.arguments)
        if found is None or _NO_RESULT.match(self.name):
            return range(0)
        first = int(found[1])
        return range(first, first + self._width())

    def _width(self) -> int:
        if product := re.match(r"HGMMA\.64x(\d+)x\d+\.F32", self.name):
            return int(product[1]) // 2
        if self.name.startswith("LDSM"):
            return int(self.name.rpartition(".")[2])
        if self.name.startswith("LD"):
            return 4 if ".128" in self.name else 2 if ".64" in self.name else 1
        return 2 if self.name == "CS2R" or "WIDE" in self.name else 1

    @property
    def copied(self) -> int | None:
        """The register of which it makes a copy."""
        found = _COPY.match(f"{self.name} {self.arguments}")
        return int(found[1]) if found else None

    @property
    def operand(self) -> int | None:
        """First register of a wgmma's left operand, None where that lies in shared memory."""
        found = re.match(r"R\d+, R(\d+),", self.arguments) if "HGMMA" in self.name else None
        return int(found[1]) if found else None


class Program:
    """The instructions of a kernel, and which may come before which."""

    def __init__(self, text: str) -> None:
        self.lines = [Instruction(int(m[1], 16), m[2], m[3], m[4]) for m in _LINE.finditer(text)]
        places = {line.address: place for place, line in enumerate(self.lines)}
        self.before: defaultdict[int, list[int]] = defaultdict(list)
        for place, line in enumerate(self.lines):
            target = re.search(r"0x([0-9a-f]+)", line.arguments) if line.name == "BRA" else None
            if target and int(target[1], 16) in places:
                self.before[places[int(target[1], 16)]].append(place)
            always = line.predicate is None and not re.match("!?U?P", line.arguments)
            if not (always and line.name in ("BRA", "EXIT")):
                self.before[place + 1].append(place)

    def setters(self, place: int, register: int) -> set[int]:
        """Where what `register` holds at `place` may have been set, copies followed."""
        found: set[int] = set()
        seen: set[tuple[int, int]] = set()
        ahead = [(earlier, register) for earlier in self.before[place]]
        while ahead:
            at, wanted = step = ahead.pop()
            if step in seen:
                continue
            seen.add(step)
            line = self.lines[at]
            sets, copied = wanted in line.results, line.copied
            if sets and copied is not None:
                ahead += [(earlier, copied) for earlier in self.before[at]]
            elif sets:
                found.add(at)
            if not sets or line.predicate is not None:
                ahead += [(earlier, wanted) for earlier in self.before[at]]
        return found

    def products(self) -> list[int]:
        """The wgmmas with their left operand in registers."""
        return [place for place, line in enumerate(self.lines) if line.operand is not None]

    def overwritten(self) -> list[str]:
        """Operands that do not come from one instruction."""
        wrong = []
        for place in self.products():
            first = self.lines[place].operand or 0
            for register in range(first, first + _OPERAND_REGISTERS):
                setters = sorted(self.setters(place, register))
                if len(setters) != 1:
                    names = ", ".join(self.lines[at].name for at in setters)
                    wrong.append(f"R{register} of {self.lines[place].address:#x}: {names}")
        return wrong


_LOOP = """
        /*0000*/                   LDSM.16.M88.4 R4, [R1+UR8] ;
        /*0010*/                   LDSM.16.M88.4 R88, [R0+UR8] ;
        /*0020*/                   CS2R R56, SRZ ;
        /*0030*/                   IMAD.MOV.U32 R90, RZ, RZ, R6 ;
        /*0040*/                   HGMMA.64x64x16.F32.BF16 R24, R88, gdesc[UR8], RZ, !UPT, gsb0 ;
        /*0050*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0060*/               @P1 BRA 0x0080 ;
        /*0070*/                   F2FP.BF16.F32.PACK_AB {weight}, R21, R20 ;
        /*0080*/              @!P0 BRA {start} ;
        /*0090*/                   EXIT ;
"""


def test_an_operand_overwritten_in_a_loop_is_found() -> None:
    program = Program(_LOOP.format(weight="R90", start="0x0040"))
    assert program.overwritten() == ["R90 of 0x40: LDSM.16.M88.4, F2FP.BF16.F32.PACK_AB"]


@pytest.mark.parametrize(("weight", "start"), [("R92", "0x0040"), ("R90", "0x0030")])
def test_an_operand_that_lasts_or_is_copied_anew_is_not(weight: str, start: str) -> None:
    program = Program(_LOOP.format(weight=weight, start=start))
    assert len(program.products()) == 1
    assert program.overwritten() == []


_COMPILE = """
import sys
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from gpuprof.reference_kernels.attention import triton_flash, triton_flash_backward
from gpuprof.reference_kernels.attention.problem import AttentionProblem

TARGET = GPUTarget("cuda", 90, 32)
BACKEND = make_backend(TARGET)


def compile_launch(function, *arguments, grid, warmup, **named):
    # What JITFunction.run does on a GPU, short of the launch.
    named["debug"] = False
    binder = create_function_from_signature(function.signature, function.params, BACKEND)
    bound, specialization, options = binder(*arguments, **named)
    options, signature, constants, attributes = function._pack_args(
        BACKEND, named, bound, specialization, options
    )
    source = ASTSource(function, signature, constants, attributes)
    compiled = triton.compile(source, target=TARGET, options=options.__dict__)
    Path(sys.argv[1], compiled.hash).with_suffix(".cubin").write_bytes(compiled.asm["cubin"])


JITFunction.run = compile_launch
for size in ("causal-forward:1x2x1x150x64", "causal-forward:1x2x1x150x128"):
    for tiles in triton_flash._CONFIGURATIONS:
        triton_flash.SMALL = tiles
        triton_flash.prepare(AttentionProblem(size, "bf16", torch.device("cpu"))).call()
problem = AttentionProblem("causal-backward:1x2x1x150x64", "bf16", torch.device("cpu"))
triton_flash_backward.SMALL = triton_flash_backward._FOR_KEYS[0]
triton_flash_backward.prepare(problem).call()
"""


@needs_newer_triton
@pytest.mark.parametrize("assembler", ["ptxas", "ptxas-blackwell"])
def test_no_operand_of_attention_is_overwritten(assembler: str, tmp_path: Path) -> None:
    tools = Path(triton.__path__[0], "backends/nvidia/bin")
    if not (tools / assembler).exists() or not (tools / "cuobjdump").exists():
        pytest.skip(f"this Triton comes without {assembler} or cuobjdump")
    environment = {
        **os.environ,
        # These tests run under Triton's interpreter, which does not compile.
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
        "TRITON_PTXAS_PATH": str(tools / assembler),
        "TRITON_PTXAS_BLACKWELL_PATH": str(tools / assembler),
    }
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _COMPILE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert made.returncode == 0, made.stderr
    cubins = list(tmp_path.glob("*.cubin"))
    assert len(cubins) == 2 * 4 + 3
    products = 0
    for cubin in cubins:
        text = subprocess.run(
            [tools / "cuobjdump", "-sass", cubin], capture_output=True, text=True, check=True
        )
        program = Program(text.stdout)
        products += len(program.products())
        assert program.overwritten() == [], text.stdout
    assert products > len(cubins)
