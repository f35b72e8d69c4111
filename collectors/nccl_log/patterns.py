"""What lines of NCCL's log look like.

Source: NVIDIA/nccl 2.18 to 2.31: src/debug.cc (the prefix), src/init.cc (communicators, channels),
src/transport/{p2p,shm,net}.cc (via), src/transport/nvls.cc, src/transport/net_ib, net_socket.cc,
src/enqueue.cc (Algo, opCount), src/misc/param.cc (set by environment); pytorch/pytorch
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (the watchdog's line).
"""

import re
from typing import Final

# host:pid:tid [device] NCCL INFO text; a warning has the function that warns before NCCL. It begins
# at a colon: of a long line without one each character would begin another search for a host.
LINE: Final = re.compile(
    r"(?<=[^\s:\[\]]):(?P<pid>\d{1,10}):(?P<thread>\d{1,10}) \[-?\d{1,4}\] "
    r"(?:\S.{0,300}? )?NCCL (?P<level>INFO|WARN) ?(?P<text>.*)"
)
# At the end of what stands before that.
HOST: Final = re.compile(r"[^\s:\[\]]{1,200}\Z")
VERSION: Final = re.compile(r"(?:NCCL|RCCL) version (\d+\.\d+(?:\.\d+)?)")
NETWORK: Final = re.compile(r"Using network (.{1,60})$")
NETWORK_DEVICES: Final = re.compile(r"NET/[\w ]+ ?: Using ((?:\[\d+\]\S+ ?)+)")
NETWORK_DEVICE: Final = re.compile(r"\[\d+\]([^\s;]+)")
NVLS: Final = re.compile(r"NVLS multicast support is (not )?available on dev")
SETTING: Final = re.compile(r"(NCCL_[A-Z0-9_]{1,40}) set by environment to (.{0,60}?)\.?$")
COMMUNICATOR: Final = re.compile(
    r"comm (?P<pointer>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,6}) n[rR]anks (?P<ranks>\d{1,6})"
    r"(?: nNodes (?P<hosts>\d{1,6}))?(?:.*? cudaDev (?P<device>\d{1,3}))?"
    r"(?:.*? commId (?P<identity>0x[0-9a-f]{1,16}))?(?:.* - (?P<state>.{1,30}))?.*$"
)
COMPLETE: Final = "Init COMPLETE"
CHANNELS: Final = re.compile(
    r"(\d{1,4}) coll channels, (?:(?:\d{1,4}) collnet channels, )?(?:(\d{1,4}) nvls channels, )?"
    r"(\d{1,4}) p2p channels"
)
RCCL_CHANNELS: Final = re.compile(
    r"comm:0x.*coll channels:(\d{1,4}) .*?(?:nvls channels:(\d{1,4}), )?p2p channels:(\d{1,4})"
)
RING: Final = re.compile(r"Channel \d{1,4}/(\d{1,4}) : +\d+(?: +\d+)*$")
TREES: Final = re.compile(r"Trees((?: \[\d+\] \S+)+)")
CONNECTION: Final = re.compile(
    r"Channel \d{1,4}(?:/\d{1,3})? ?: (?P<source>\d{1,6})\[[0-9a-f]+\] -> "
    r"(?P<target>\d{1,6})\[[0-9a-f]+\](?: \[(?P<way>send|receive)\])? via (?P<transport>\S.{0,80})"
)
CHOSEN: Final = re.compile(
    r"(?P<collective>[A-Z]\w{2,30}): (?P<bytes>\d{1,18}) Bytes -> Algo (?P<algorithm>[A-Za-z_]\w*) "
    r"proto (?P<protocol>[A-Za-z_]\w*) channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\}"
)
# Kernels on symmetric memory have no protocol of their own.
CHOSEN_SYMMETRIC: Final = re.compile(
    r"(?P<bytes>\d{1,18}) Bytes -> Kernel (?P<collective>[A-Z][A-Za-z]+)_(?P<algorithm>\w+) "
    r"nchannels (?P<channels>\d{1,4})"
)
CALL: Final = re.compile(
    r"(?P<collective>[A-Z]\w{2,30}): opCount (?P<count>[0-9a-f]{1,15}) sendbuff .*?"
    r"count (?P<elements>\d{1,18}) datatype (?P<dtype>\d{1,2}) .*?"
    r"comm (?P<pointer>0x[0-9a-f]{1,16}) \[nranks=(?P<ranks>\d{1,6})\]"
)
# [Rank 0], [PG 0 Rank 0], [PG ID 0 PG GUID 0(default_pg) Rank 0]
TIMED_OUT: Final = re.compile(
    r"\[(?:PG (?P<group>[^\]]{0,80}) )?Rank (?P<rank>\d{1,6})\] Watchdog caught collective "
    r"operation timeout: WorkNCCL\(SeqNum=(?P<sequence>\d{1,18}), OpType=(?P<collective>\w{1,40}), "
    r"NumelIn=\d+, NumelOut=\d+, Timeout\(ms\)=(?P<timeout>\d{1,12})\)"
)
# ncclDataType_t of nccl.h, as torch prints these types.
DTYPES: Final = {
    "0": "Char",
    "1": "Byte",
    "2": "Int",
    "3": "UInt32",
    "4": "Long",
    "5": "UInt64",
    "6": "Half",
    "7": "Float",
    "8": "Double",
    "9": "BFloat16",
    "10": "Float8_e4m3fn",
    "11": "Float8_e5m2",
}
# Of these `count` is a rank's share of the message.
OF_SHARES: Final = ("AllGather", "ReduceScatter")
OF_MESSAGES: Final = ("AllReduce", "Broadcast", "Reduce")
