"""The phases of a training step."""

from typing import Literal

# Where in a training step an operator ran; "" where nothing tells.
Phase = Literal["forward", "backward", "optimizer", ""]
