"""The phases of a training step."""

from typing import Literal

# Where in a training step an operator ran; "" where nothing tells. gradients: after the backward
# pass and before the optimizer's step, where gradients are clipped, unscaled, or reduced last.
Phase = Literal["forward", "backward", "gradients", "optimizer", ""]
