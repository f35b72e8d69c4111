"""Kernels of Hopper's own parts: warpgroups with roles, tiles by TMA, products by wgmma.

One warpgroup does nothing but tell the copy engine which tile to bring next; the others only
multiply, with the registers that the first gives up. Between them stand barriers in shared memory,
one pair for each stage of the pipeline: full, which counts arrived bytes, and empty.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Data Movement and Conversion
Instructions: Tensor copy", "mbarrier"; the roles are those of CUTLASS's warp-specialised mainloops.
"""
