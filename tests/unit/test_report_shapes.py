"""Shapes for people."""

import pytest

from gpuprof.reports.shapes import readable_shapes

BF16 = '["c10::BFloat16", "c10::BFloat16"]'


@pytest.mark.parametrize(
    ("operator", "detail", "expected"),
    [
        ("aten::mm", f"[[4096, 11008], [11008, 4096]] {BF16}", "4096x11008x4096 bf16"),
        ("aten::mul", f"[[4096, 11008], [4096, 11008]] {BF16}", "4096x11008, 4096x11008 bf16"),
        # What does not fit together is no product.
        ("aten::mm", f"[[4, 8], [4, 8]] {BF16}", "4x8, 4x8 bf16"),
        ("aten::bmm", '[[2, 3, 4], [2, 4, 5]] ["float", "float"]', "2x3x4x5 fp32"),
        (
            "aten::addmm",
            '[[5], [3, 4], [4, 5], [], []] ["float", "float", "float", "Scalar", "Scalar"]',
            "3x4x5 fp32",
        ),
        ("aten::mm", '[[3, 4], [4, 5]] ["float", "c10::Half"]', "3x4 fp32, 4x5 fp16"),
        ("aten::embedding", '[[100, 8], [2, 3]] ["float", "long int"]', "100x8 fp32, 2x3 int64"),
        ("aten::cat", '[[[2, 3], [4, 3]], []] ["TensorList", "Scalar"]', "(2x3, 4x3)"),
        (
            "aten::_foreach_add_",
            '[[[2], [4, 3], [1]], []] ["TensorList", "Scalar"]',
            "3 tensors up to 4x3",
        ),
        (
            "aten::_foreach_add_",
            '[[[2], [4, 3], [1]], []] ["TensorList[float32]", "Scalar"]',
            "3 tensors up to 4x3 fp32",
        ),
        (
            "aten::cat",
            '[[[2, 3], [4, 3]], []] ["TensorList[float32,float16]", "Scalar"]',
            "(2x3, 4x3)",
        ),
        (
            "aten::stack",
            '[[2, 3], [2, 3], [2, 3], [4]] ["float", "float", "float", "float"]',
            "3 \N{MULTIPLICATION SIGN} 2x3, 4 fp32",
        ),
        # Traces of some versions have no types.
        ("aten::mul", "[[4096, 11008], []]", "4096x11008"),
        ("aten::mm", "[[3, 4], [4, 5]]", "3x4x5"),
        ("aten::relu", '[[]] ["float"]', ""),
        ("aten::relu", '[[7]] ["c10::FutureType_x"]', "7"),
    ],
)
def test_shapes_are_for_people(operator: str, detail: str, expected: str) -> None:
    assert readable_shapes(detail, operator) == expected


@pytest.mark.parametrize(
    "detail",
    [
        "",
        "grid 2x66x1, block 384x1x1",
        "[[4096, 4096]] bf16",
        "[[4]",
        '[[4]] ["float", "float"]',
        '{"a": 1} []',
        '[[4]] ["float"] and more',
        "[[4]] [1]",
    ],
)
def test_any_other_text_stays_as_it_is(detail: str) -> None:
    assert readable_shapes(detail) == detail
