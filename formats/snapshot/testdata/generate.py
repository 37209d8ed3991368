"""Writes the pickles of this folder with Python's own pickler.

python3 generate.py

Each file holds a history that an allocator with PyTorch's rules would leave;
the numbers are worked out by hand.
"""

import gzip
import pickle

MIB = 1 << 20
BASE = 0x7F0000000000


def frames(*lines):
    return [{"filename": "model.py", "line": n, "name": f} for f, n in lines]


FORWARD = frames(("matmul", 12), ("forward", 30))


def event(action, addr, size, stream=0, time=0, **more):
    e = {"action": action, "addr": addr, "size": size, "stream": stream}
    if time:
        e["time_us"] = 1_700_000_000_000_000 + time
    e["frames"] = FORWARD if action == "alloc" else []
    e.update(more)
    return e


def block(addr, size, requested, state):
    return {"address": addr, "size": size, "requested_size": requested, "state": state, "frames": []}


def segment(addr, size, blocks, stream=0, kind="large", expandable=False):
    active = [b for b in blocks if b["state"] != "inactive"]
    return {
        "device": 0, "address": addr, "total_size": size,
        "allocated_size": sum(b["size"] for b in active if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in active),
        "requested_size": sum(b["requested_size"] for b in active),
        "stream": stream, "segment_type": kind, "segment_pool_id": (0, 0),
        "is_expandable": expandable, "frames": [], "blocks": blocks,
    }


SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
    "expandable_segments": False, "roundup_power2_divisions": {"1": 0, "2": 0},
}

# A record from the first request on, on two streams. The 11 MiB request takes
# its whole segment of 12 MiB; the block of stream 7 waits for another stream.
A, S, B = BASE, BASE + 0x10000000, BASE + 0x20000000
classic = {
    "segments": [
        segment(A, 12 * MIB, [block(A, 12 * MIB, 11 * MIB, "active_allocated")]),
        segment(B, 20 * MIB, [
            block(B, 5 * MIB, 5 * MIB, "active_pending_free"),
            block(B + 5 * MIB, 15 * MIB, 0, "inactive"),
        ], stream=7),
        segment(S, 2 * MIB, [block(S, 512, 100, "active_allocated"), block(S + 512, 2 * MIB - 512, 0, "inactive")], kind="small"),
    ],
    "device_traces": [[
        event("segment_alloc", A, 12 * MIB, time=1),
        event("alloc", A, 11 * MIB, time=1),
        event("free_requested", A, 11 * MIB, time=2),
        event("free_completed", A, 11 * MIB, time=2),
        event("alloc", A, 11 * MIB, time=3),
        event("segment_alloc", S, 2 * MIB, time=4),
        event("alloc", S, 100, time=4),
        event("segment_alloc", B, 20 * MIB, 7, time=5),
        event("alloc", B, 5 * MIB, 7, time=5),
        event("snapshot", 0, 17 * MIB + 512, time=6),
        event("free_requested", B, 5 * MIB, 7, time=7),
        event("oom", 0, 80 * MIB, time=8, device_free=3 * MIB),
    ], []],
    "allocator_settings": SETTINGS,
    "external_annotations": [],
}
del classic["device_traces"][0][-1]["addr"]

# A record that begins mid-run: of the first block only its end is known, the
# rest of 1 MiB that belongs to it shows by where the next one begins. Then the
# cache is emptied.
midrun = {
    "segments": [segment(A, 20 * MIB, [block(A, 6 * MIB, 0, "inactive"), block(A + 6 * MIB, 14 * MIB, 13 * MIB + 1, "active_allocated")])],
    "device_traces": [[
        event("free_requested", A, 5 * MIB),
        event("free_completed", A, 5 * MIB),
        event("segment_free", B, 32 * MIB),
        event("segment_free", S, 2 * MIB),
        event("alloc", A, 6 * MIB),
        event("free_requested", A, 6 * MIB),
        event("free_completed", A, 6 * MIB),
    ]],
}

# How the first versions of the format looked: no requested sizes, addresses of
# blocks or traces; the state's name of the manual.
old = {
    "segments": [{
        "device": 1, "address": A, "total_size": 2 * MIB, "stream": 0, "segment_type": "small",
        "blocks": [
            {"size": 1024, "state": "active_awaiting_free", "history": [{"addr": A, "real_size": 900, "frames": FORWARD}]},
            {"size": 2 * MIB - 1024, "state": "inactive"},
        ],
    }],
}

# torch_npu: 32 bytes more per request, a handle as stream, no times and no
# settings. 20 MiB pages of an expandable segment, in which blocks of 2 MiB and
# more begin at multiples of 16 KiB.
NPU = frames(("zeros", 3))
NPU[0]["filename"] = "/site-packages/torch_npu/utils.py"
expandable = {
    "segments": [segment(A, 40 * MIB, [
        block(A, 8 * MIB + 512, 8 * MIB, "active_allocated"),
        block(A + 8 * MIB + 512, 16 * 1024 - 512, 0, "inactive"),
        block(A + 8 * MIB + 16 * 1024, 16 * MIB + 512, 16 * MIB, "active_allocated"),
        block(A + 24 * MIB + 16 * 1024 + 512, 16 * MIB - 16 * 1024 - 512, 0, "inactive"),
    ], stream=1534455456, expandable=True)],
    "device_traces": [[
        event("segment_map", A, 20 * MIB, 1534455456),
        event("alloc", A, 8 * MIB, 1534455456, frames=NPU),
        event("segment_map", A + 20 * MIB, 20 * MIB, 1534455456),
        event("alloc", A + 8 * MIB + 16 * 1024, 16 * MIB, 1534455456, frames=NPU),
    ]],
}

for name, data in {"midrun": midrun, "old": old, "expandable": expandable}.items():
    with open(name + ".pickle", "wb") as f:
        pickle.dump(data, f, 4)
for protocol in range(2, 6):
    with open(f"classic.p{protocol}.pickle", "wb") as f:
        pickle.dump(classic, f, protocol)
with open("classic.p4.pickle", "rb") as f, open("classic.p4.pickle.gz", "wb") as g:
    g.write(gzip.compress(f.read(), mtime=0))
