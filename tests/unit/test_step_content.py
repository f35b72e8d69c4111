"""What a step of a training consists of, and how reports name it."""

import pytest
from capture_builder import CaptureBuilder

from gpuprof.reports.step_unit import is_usual, sentence, step_unit
from gpuprof.roofline.step_figures import StepContent
from gpuprof.roofline.steps.step_content import step_content

NODE = "autograd::engine::evaluate_function: "


class Training:
    """Writes the steps of a training down; each call of `backward` takes 100 ns."""

    def __init__(self, build: CaptureBuilder) -> None:
        self.build = build
        self.now = 0
        self.made = 0

    def backward(self, *shapes: str, nodes: int = 3) -> None:
        """A pass over as many new nodes, youngest first, and a gradient of each of `shapes`."""
        self.made += nodes
        for older in range(nodes):
            self._evaluate("MulBackward0", sequence=self.made - older, forward_thread=1)
        for shape in shapes:
            self._evaluate("torch::autograd::AccumulateGrad")
            self.build.op("torch::autograd::AccumulateGrad", self.now - 9, self.now, dims=shape)
        self.now += 100

    def _evaluate(self, name: str, **columns: int) -> None:
        self.build.op(NODE + name, self.now, self.now + 10, **columns)
        self.now += 10

    def optimizer(self) -> None:
        self.build.range("Optimizer.step#AdamW.step", self.now, self.now + 10)
        self.now += 20

    def end_step(self, begun: int) -> None:
        self.build.step("profiled", begun, self.now)

    def content(self) -> StepContent | None:
        return step_content(self.build.build())


@pytest.fixture
def training(build: CaptureBuilder) -> Training:
    return Training(build)


def test_a_usual_step(training: Training) -> None:
    for _ in range(3):
        begun = training.now
        training.backward("[[8]]", "[[8, 8]]")
        training.optimizer()
        training.end_step(begun)
    content = training.content()
    assert content == StepContent(backward_passes=(1, 1), optimizer_steps=(1, 1), accumulates=False)
    assert is_usual(content)
    assert step_unit(content) == "optimizer step"


def test_gradients_of_the_same_parameters_are_accumulated(training: Training) -> None:
    for _ in range(2):
        begun = training.now
        training.backward("[[8]]", "[[8, 8]]")
        # In another order, as threads of autograd may come.
        training.backward("[[8, 8]]", "[[8]]")
        training.optimizer()
        training.end_step(begun)
    content = training.content()
    assert content is not None
    assert content.accumulates
    assert sentence(content) == "a step is one optimizer step of 2 micro-batches"


def test_passes_of_two_networks_are_no_micro_batches(training: Training) -> None:
    training.backward("[[8]]")
    training.backward("[[4, 4]]", "[[2]]")
    training.optimizer()
    training.end_step(0)
    content = training.content()
    assert content is not None
    assert step_unit(content) == "optimizer step of 2 backward passes"


def test_steps_that_are_micro_batches(training: Training) -> None:
    for index in range(3):
        begun = training.now
        training.backward("[[8]]")
        if index == 1:
            training.optimizer()
        training.end_step(begun)
    content = training.content()
    assert content is not None
    assert content.optimizer_steps == (0, 1)
    assert step_unit(content) == "micro-batch, of which not each ends in an optimizer step"


def test_two_optimizers(training: Training) -> None:
    training.backward("[[8]]")
    training.optimizer()
    training.optimizer()
    training.end_step(0)
    content = training.content()
    assert content is not None
    assert sentence(content) == "a step is 2 optimizer steps and 1 backward pass"


def test_steps_of_different_numbers_of_micro_batches(training: Training) -> None:
    for passes in (2, 3):
        begun = training.now
        for _ in range(passes):
            training.backward("[[8]]")
        training.optimizer()
        training.end_step(begun)
    content = training.content()
    assert content is not None
    assert step_unit(content) == "optimizer step of 2 to 3 micro-batches"


def test_a_pass_within_a_node_is_part_of_its_pass(training: Training) -> None:
    # Reentrant checkpointing repeats the forward, whose nodes are the youngest.
    training.build.op(NODE + "CheckpointFunctionBackward", 0, 50, sequence=1, forward_thread=1)
    training.build.op(NODE + "MulBackward0", 10, 20, sequence=5, forward_thread=1)
    training.build.op("torch::autograd::AccumulateGrad", 21, 22, dims="[[8]]")
    training.now = 60
    training.end_step(0)
    content = training.content()
    assert content is not None
    assert content.backward_passes == (1, 1)


def test_what_adds_no_gradient_is_not_counted(training: Training) -> None:
    # torch.compile traces a backward pass; a penalty asks for gradients of inputs.
    training.backward()
    training.backward("[[8]]")
    training.optimizer()
    training.end_step(0)
    content = training.content()
    assert content is not None
    assert content.backward_passes == (1, 1)


def test_without_a_backward_pass_nothing_is_said(training: Training) -> None:
    training.build.mm(0, 10)
    training.now = 20
    training.end_step(0)
    assert training.content() is None
