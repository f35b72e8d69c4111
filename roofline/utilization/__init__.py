"""MFU, HFU and MBU of a step, by the operators' count and in closed form."""
