"""The tables of a capture: which columns, which types, what a row is.

All times are int64 nanoseconds on the capture's clock (Unix epoch unless the manifest says
otherwise). `rank` partitions every table on disk (`rank=R/NAME.parquet`) and is its first column
in memory. Null means unknown; 0 is a measured zero. Lists that operators print (shapes, types,
strides, concrete inputs) are kept as their JSON text: nested lists have no common column type,
and equal texts compress to one dictionary entry.
"""

from typing import Final

import polars as pl

_TIMES: Final = {"start_ns": pl.Int64, "end_ns": pl.Int64}

KERNELS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        **_TIMES,
        "name": pl.String,
        # kernel, memcpy, memset, collective; on a CPU run: op
        "kind": pl.String,
        "process": pl.Int64,
        "device": pl.Int32,
        "context": pl.Int64,
        "stream": pl.Int64,
        # Links to launches of the same process. Repeats over the kernels of one graph replay.
        # Null where the source had none (written there as 0).
        "correlation": pl.Int64,
        # Filled by gpuprof.roofline.work.attribution: the innermost op that launched it, its step.
        "op_id": pl.Int64,
        # Of the work of a graph's replay: true where op_id is that of its place in the graph, false
        # where it is that of one of several pieces whose operators are alike. Null where neither is
        # known, and op_id is what is around the launch of the whole graph. Null also for what was
        # launched by itself.
        "op_certain": pl.Boolean,
        "step": pl.Int32,
        "grid_x": pl.Int32,
        "grid_y": pl.Int32,
        "grid_z": pl.Int32,
        "block_x": pl.Int32,
        "block_y": pl.Int32,
        "block_z": pl.Int32,
        "registers": pl.Int32,
        "shared_memory": pl.Int64,
        # Bytes that a memcpy or memset moved, as its source reports them.
        "bytes": pl.Int64,
        "graph_id": pl.Int64,
        # What the program says of its node in the graph (torch.cuda.graph_annotations).
        "annotation": pl.String,
        "collective": pl.String,
        "message_bytes": pl.Int64,
        "dtype": pl.String,
        "group": pl.String,
        "group_size": pl.Int32,
        "sequence": pl.Int64,
    }
)

OPS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        # Unique in its rank; rows are sorted by start_ns, parents before children.
        "op_id": pl.Int64,
        "parent_id": pl.Int64,
        "name": pl.String,
        "process": pl.Int64,
        "thread": pl.Int64,
        **_TIMES,
        "input_dims": pl.String,
        "input_types": pl.String,
        "input_strides": pl.String,
        "concrete_inputs": pl.String,
        # What a generated kernel calls its arguments (in_out_ptr0, in_ptr0, out_ptr0, xnumel).
        "argument_names": pl.String,
        # How many loads or stores of each stand in its source; null in captures of older versions.
        "argument_accesses": pl.String,
        # Autograd's sequence number and the thread of the forward op, which link a backward op
        # to its forward.
        "sequence": pl.Int64,
        "forward_thread": pl.Int64,
        # The path of the innermost module that calls it, as named_modules of the model gives it; in
        # a trace of other tools as that names it. A backward op has its forward's.
        "module": pl.String,
        # Where the program calls it: the innermost function of the program's own files and the line
        # there (null where only the function is known), and the line where the function begins.
        # A backward op has its forward's.
        "file": pl.String,
        "line": pl.Int32,
        "function": pl.String,
        "function_line": pl.Int32,
        # All Python frames that lead there, as gpuprof.collectors.stacks has them; a backward op
        # has its forward's. Null where they were not recorded.
        "stack": pl.String,
        # Of what torch.compile generated, or calls in a library: the operators of the program that
        # it is made of, each with its place; JSON text of a list of
        # gpuprof.collectors.kernel_origins.KernelOrigin. The columns above are those of the first.
        "origins": pl.String,
        "recompute": pl.Boolean,
        # Of a product: a number for the tensor that is multiplied with its weight. Products with
        # one number take the same tensor, and nothing else took it between them. Null where the
        # source does not tell.
        "multiplied": pl.Int64,
    }
)

LAUNCHES: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "name": pl.String,
        "process": pl.Int64,
        "thread": pl.Int64,
        **_TIMES,
        "correlation": pl.Int64,
    }
)

RANGES: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "name": pl.String,
        # nvtx, record_function, region, an NVTX domain's own name; gpuprof: no range of the
        # program, but what gpuprof saw its host do
        "domain": pl.String,
        "process": pl.Int64,
        "thread": pl.Int64,
        **_TIMES,
        # A start/end pair: `thread` began it, and it holds what all threads of the process do.
        "across_threads": pl.Boolean,
        # What gpuprof.region(..., flops=, bytes=) declared for one pass through it.
        "flops": pl.Int64,
        "bytes": pl.Int64,
        # The declared FLOPs by unit and precision, where the declarer knows them: the JSON text of
        # a list of gpuprof.roofline.cost_models.cost.Flops.
        "flops_by_unit": pl.String,
        # In the domain gpuprof, what the host did: JSON text of a gpuprof.collectors.host_events.
        "host_event": pl.String,
    }
)

POSITIONS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "process": pl.Int64,
        "thread": pl.Int64,
        # One stretch of time in which a thread of the program was here.
        **_TIMES,
        # As in `OPS`; null outside of the program's own files, and of all modules.
        "module": pl.String,
        "file": pl.String,
        "line": pl.Int32,
        "function": pl.String,
        "function_line": pl.Int32,
        "stack": pl.String,
    }
)

STEPS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "index": pl.Int32,
        **_TIMES,
        # warmup, timed (no profiler attached), profiled, or cut off (profiled, but not to its end)
        "phase": pl.String,
        # Between the CUDA events at the step's two ends; null without a GPU.
        "device_ns": pl.Int64,
        # When the device reached the first of these events; null in captures of older versions.
        "device_start_ns": pl.Int64,
        # Between the host's clock readings at the step's two ends.
        "host_ns": pl.Int64,
        # Of host_ns: the stepping thread was ready to run and another had its core.
        "run_delay_ns": pl.Int64,
        # Of host_ns: Python collected garbage, on whichever thread.
        "garbage_collection_ns": pl.Int64,
        # Of host_ns: the stepping thread was in `next` of a DataLoader; of timed steps only, null
        # in captures of older versions.
        "loader_ns": pl.Int64,
        "found_by": pl.String,
        "tokens": pl.Int64,
    }
)

# Columns that captures of older versions have by another name; no table has both.
FORMER_NAMES: Final = {"gc_ns": "garbage_collection_ns"}

SAMPLES: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "time_ns": pl.Int64,
        "device": pl.Int32,
        "sm_clock_mhz": pl.Int32,
        "memory_clock_mhz": pl.Int32,
        "power_milliwatts": pl.Int64,
        # Counted by the device since its driver was loaded; null in captures of older versions.
        "energy_millijoules": pl.Int64,
        "temperature_celsius": pl.Int32,
        # NVML's clocks-event-reasons bits.
        "throttle_reasons": pl.Int64,
        "utilisation_percent": pl.Float32,
        "memory_used_bytes": pl.Int64,
        # Of the link to the host: its generation, and its lanes.
        "pcie_generation": pl.Int32,
        "pcie_width": pl.Int32,
        "pcie_tx_bytes_per_s": pl.Int64,
        "pcie_rx_bytes_per_s": pl.Int64,
        "nvlink_tx_bytes_per_s": pl.Int64,
        "nvlink_rx_bytes_per_s": pl.Int64,
        "sm_active_percent": pl.Float32,
        "tensor_active_percent": pl.Float32,
        "dram_active_percent": pl.Float32,
        # Between the two readings of the device's counters (GPM) whose difference its activity and
        # the rates of its links are. Null where they come from elsewhere, and in captures of older
        # versions, where the end is `time_ns` and the start that of the row with figures before.
        "window_start_ns": pl.Int64,
        "window_end_ns": pl.Int64,
    }
)

COUNTERS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        # The kernel launch the counter belongs to: its name and its index among the launches of
        # that name and grid, in launch order.
        "kernel": pl.String,
        "grid": pl.String,
        "block": pl.String,
        "launch_index": pl.Int64,
        "metric": pl.String,
        "value": pl.Float64,
        "unit": pl.String,
        # False where the launch was only one of several that it could be; null: as measured.
        "certain": pl.Boolean,
    }
)

ALLOCATIONS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "time_ns": pl.Int64,
        # Null for main memory.
        "device": pl.Int32,
        # Positive for an allocation, negative for a free.
        "bytes": pl.Int64,
        # What the allocator of the device has given out after it, and what it holds for that. Null
        # where the source does not say; in main memory `total` counts from when torch first
        # recorded, and is not of a trace alone.
        "total": pl.Int64,
        "reserved": pl.Int64,
        "address": pl.Int64,
        # device or cpu
        "category": pl.String,
        "op_id": pl.Int64,
        # Python frames, innermost first, as lines "file:line function"; null where not recorded.
        "stack": pl.String,
    }
)

# A row is one piece of memory that was seen at one moment, not a change of it.
MEMORY_BLOCKS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "time_ns": pl.Int64,
        # profile end, optimizer step (gradients alone), out of memory, snapshot
        "moment": pl.String,
        "device": pl.Int32,
        "address": pl.Int64,
        # As the allocator cut it, and what was asked for.
        "bytes": pl.Int64,
        "requested": pl.Int64,
        # allocated; pending free (given back, while a stream may still use it); free
        "state": pl.String,
        # What the allocator got from the driver in one piece, of which this is a part.
        "segment": pl.Int64,
        "segment_bytes": pl.Int64,
        # parameter, buffer, gradient, optimizer state, tensor; null where nothing tells.
        "category": pl.String,
        # Of a parameter or buffer its name in its model; of a state its optimizer.
        "name": pl.String,
        "stack": pl.String,
    }
)

# A row is one allocation that failed.
OUT_OF_MEMORY: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "time_ns": pl.Int64,
        "device": pl.Int32,
        "asked": pl.Int64,
        # What the allocator may use of the device, and what of the device was free.
        "limit": pl.Int64,
        "free": pl.Int64,
        "stack": pl.String,
    }
)

GRAPH_NODES: Final = pl.Schema(
    {
        "rank": pl.Int32,
        # The captured graph, numbered within its rank, and the node's place among those of the
        # graph, in the order in which the host made them.
        "graph": pl.Int64,
        "node": pl.Int32,
        # When its call was recorded; null where only the graph itself tells of it.
        "start_ns": pl.Int64,
        # kernel, memcpy, memset
        "kind": pl.String,
        # Of a kernel; null where the source does not name what its calls launch.
        "name": pl.String,
        "grid_x": pl.Int32,
        "grid_y": pl.Int32,
        "grid_z": pl.Int32,
        "block_x": pl.Int32,
        "block_y": pl.Int32,
        "block_z": pl.Int32,
        # The innermost operator around its call.
        "op_id": pl.Int64,
        # capture: a node of a graph; eager: work that ran in another trace of the same program.
        "origin": pl.String,
        # The range around the capture, which may say its batch size.
        "label": pl.String,
        # The file that it was read from, where that is not this capture's own.
        "file": pl.String,
    }
)

# A row is one collective, send or receive as the program put it into its group's queue, of those
# that torch's flight recorder still held.
COLLECTIVE_RECORDS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        # Counts what this process recorded.
        "record": pl.Int64,
        # Its process group's name in torch. Counts the group's collectives, or what one pair of it
        # sends.
        "group": pl.String,
        "sequence": pl.Int64,
        "point_to_point": pl.Boolean,
        "backend": pl.String,
        # As torch calls it: all_reduce, send. The ranks within the group that a send goes to and a
        # receive comes from.
        "collective": pl.String,
        "peer": pl.Int32,
        # JSON lists of each tensor's sizes; names of their types, the same as of a collective.
        "input_sizes": pl.String,
        "output_sizes": pl.String,
        "dtype": pl.String,
        # By nccl-tests the full buffer, as of a kernel; null where it does not tell.
        "message_bytes": pl.Int64,
        # When it was put into the queue, and when the watchdog saw that it had begun and ended.
        "created_ns": pl.Int64,
        "started_ns": pl.Int64,
        "completed_ns": pl.Int64,
        # By CUDA events, where the program asked for them.
        "duration_ns": pl.Int64,
        # scheduled, started, completed. A backend without events never says more than scheduled.
        "state": pl.String,
        # Nobody waits for it any more: it is done, or was given up.
        "retired": pl.Boolean,
        "timeout_ns": pl.Int64,
        "stack": pl.String,
    }
)

TABLES: Final[dict[str, pl.Schema]] = {
    "kernels": KERNELS,
    "ops": OPS,
    "launches": LAUNCHES,
    "ranges": RANGES,
    "positions": POSITIONS,
    "steps": STEPS,
    "samples": SAMPLES,
    "counters": COUNTERS,
    "allocations": ALLOCATIONS,
    "memory_blocks": MEMORY_BLOCKS,
    "out_of_memory": OUT_OF_MEMORY,
    "graph_nodes": GRAPH_NODES,
    "collective_records": COLLECTIVE_RECORDS,
}

# Tables that live collectors fill and no capture has: they lead to `ops.origins`.
COMPILED_RUNS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "process": pl.Int64,
        "thread": pl.Int64,
        # One run of the code that inductor generated for a graph.
        **_TIMES,
        "graph": pl.Int64,
    }
)

# A row is one operator in one kernel that the code of a graph calls.
COMPILED_CALLS: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "process": pl.Int64,
        "graph": pl.Int64,
        # The call, numbered in the order of the code, over all graphs.
        "call": pl.Int64,
        # As in `OPS.name`.
        "kernel": pl.String,
        # The operator's place among those of the kernel.
        "origin": pl.Int32,
        "operator": pl.String,
        "backward": pl.Boolean,
        # Its module below the variable where dynamo found it, whether that is the `self` of the
        # compiled function, and the JSON list of the paths of modules that it may be.
        "module": pl.String,
        "of_self": pl.Boolean,
        "modules": pl.String,
        # As in `OPS`.
        "file": pl.String,
        "line": pl.Int32,
        "function": pl.String,
        "function_line": pl.Int32,
        # The frames below that of the compiled function.
        "stack": pl.String,
    }
)

BESIDE_A_PROFILE: Final[dict[str, pl.Schema]] = {
    **TABLES,
    "compiled_runs": COMPILED_RUNS,
    "compiled_calls": COMPILED_CALLS,
}


def empty(table: str) -> pl.DataFrame:
    """A frame of `table` without rows."""
    return pl.DataFrame(schema=TABLES[table])


def conform(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with exactly the columns of `table`, in order; absent ones are null."""
    schema = TABLES[table]
    return frame.select(
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )
