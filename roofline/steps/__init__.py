"""How long steps took, what hid what in them, and the device's state meanwhile."""
