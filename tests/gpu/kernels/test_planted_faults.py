"""Do the checks see? Each fault that is planted into the kernels must be found by one of them."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gpu.pretend import kernels_on_host
from helpers.gpu_kernels.process import checks_fail
from mpistrat.testing.sets import repeats

pytestmark = [
    repeats(),
    pytest.mark.skipif(
        kernels_on_host.why_not() is not None, reason=str(kernels_on_host.why_not())
    ),
]


class Fault(NamedTuple):
    """A text of the kernels, what it becomes, and what has to find the change."""

    family: str
    old: str
    new: str
    mode: kernels_on_host.Mode = "plain"
    is_a_hang: bool = False


FLAG_LOAD = "__hip_atomic_load(flag, __ATOMIC_ACQUIRE"
FLAG_STORE = "__hip_atomic_store(flag, value, __ATOMIC_RELEASE"
FAULTS = {
    "the tail goes one too far": Fault(
        "slice_reduce",
        "i < count; i += threads) body.element",
        "i <= count; i += threads) body.element",
        "address",
    ),
    "alignment is not asked": Fault(
        "slice_reduce", "coincide_ = coincide_ &&", "coincide_ = coincide_ ||", "address"
    ),
    "an index wraps": Fault(
        "slice_reduce",
        "static_cast<u64>(blockIdx.x) * blockDim.x",
        "static_cast<u64>(blockIdx.x % 2) * blockDim.x",
    ),
    "ranks are taken in another order": Fault(
        "slice_reduce", "sources.of[source])", "sources.of[num - source])"
    ),
    "a NaN loses": Fault("slice_reduce", "a < b || a != a", "a < b"),
    "a minimum is -0.0": Fault("slice_reduce", "return x + 0.0f;", "return x;"),
    "integers are averaged as float32": Fault(
        "slice_reduce", "return as_double(x);", "return static_cast<float>(as_double(x));"
    ),
    "a flag is relaxed, not released": Fault(
        "one_shot", FLAG_STORE, FLAG_STORE.replace("RELEASE", "RELAXED"), "thread"
    ),
    "a flag is loaded relaxed": Fault(
        "one_shot", FLAG_LOAD, FLAG_LOAD.replace("ACQUIRE", "RELAXED"), "thread"
    ),
    "a flag is no atomic": Fault(
        "one_shot",
        "__hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM)",
        "*(volatile u32*)flag = value",
        "thread",
    ),
    "no barrier before the flags": Fault(
        "one_shot", "__syncthreads();  // the part", "// the part", "thread"
    ),
    "no barrier after the flags": Fault(
        "one_shot", "__syncthreads();  // the peers'", "// the peers'", "thread"
    ),
    "nobody waits": Fault("one_shot", "if (!meet(call)) return;", "", "thread"),
    "some threads skip a barrier": Fault(
        "one_shot", "__syncthreads();  // the peers'", "if (threadIdx.x != 5) __syncthreads();  //"
    ),
    "a shared word is not cleared": Fault("one_shot", "if (threadIdx.x == 0) is_off = 0;", ""),
    "the host's word is not looked at": Fault(
        "one_shot", "load_acquire(call.cancel) != 0", "false", is_a_hang=True
    ),
    "a piece's first bytes are left out": Fault(
        "pieces",
        "for (u64 i = threadIdx.x; i < head; i += blockDim.x)",
        "for (u64 i = threadIdx.x; i + 1 < head; i += blockDim.x)",
    ),
    "words are as wide as they like": Fault(
        "pieces", "if (apart % 16 == 0)", "if (apart % 4 == 0)", "address"
    ),
    "a row is not gone over to": Fault(
        "pieces", "column -= each;\n      ++row;", "column -= each;"
    ),
    "the last chunks are nobody's": Fault("pieces", "(block < more ? 1 : 0)", "0"),
    "bfloat16 is cut off": Fault("cast", "(bits + 0x7fffu + (bits >> 16 & 1u))", "bits"),
    "a tie is rounded up": Fault("cast", "0xfffu + (magnitude >> 13 & 1u)", "0x1000u"),
    "a double is rounded twice": Fault(
        "cast", "narrow<Half>(rounded_to_odd(x))", "narrow<Half>(static_cast<float>(x))"
    ),
    "a product and a sum are fused": Fault(
        "updates",
        "slots[0] + gradient * gradient;",
        "__builtin_fma((double)gradient, (double)gradient, (double)slots[0]);",
    ),
    "epsilon is outside of the root": Fault(
        "updates",
        "square_root(slots[0] + numbers.of[1])",
        "(square_root(slots[0]) + numbers.of[1])",
    ),
    "half types are rounded at each step": Fault(
        "scatter_add",
        "Sum::combine(totals[i], Kind::load(next.of[i]));",
        "Kind::load(Kind::finish(Sum::combine(totals[i], Kind::load(next.of[i])), 1));",
    ),
    "rows are added in another order": Fault(
        "scatter_add", "call.position(k)", "call.position(end - 1 - (k - begin))"
    ),
    "a row ends behind the next one's first key": Fault(
        "scatter_add", "if (row(middle) == mine)", "if (row(middle) <= mine + 1)"
    ),
    "each key of a row adds all of them": Fault(
        "scatter_add", "if (k == 0 || call.row(k) != call.row(k - 1)) body", "body"
    ),
    "keys of bad indices are used": Fault(
        "scatter_add", "if (call.bad != nullptr && *call.bad != 0) return;", ""
    ),
    "equal digits of a thread share a place": Fault(
        "row_order", "+ (earlier >> i * 4 & 15);", "+ (earlier >> i * 4 & 0);"
    ),
    "counts are summed too early": Fault(
        "row_order", "__syncthreads();  // the counts of all", "// the counts of all", "thread"
    ),
    "keys are placed too early": Fault(
        "row_order", "__syncthreads();  // the places of all", "// the places of all", "thread"
    ),
    "digits are counted before the counts are cleared": Fault(
        "row_order", "__syncthreads();  // before any digit", "// before any digit", "thread"
    ),
    "a tile's total is its own count": Fault(
        "row_order", "kTotal | (before + mine)", "kTotal | mine"
    ),
    "a tile looks back behind a total": Fault("row_order", "if (seen >= kTotal) break;", ""),
    "the first tile tells nothing": Fault(
        "row_order",
        "(tile == 0 ? kTotal : kPart) | mine",
        "tile ? kPart | mine : 0",
        is_a_hang=True,
    ),
    "the last tile is taken for a full one": Fault(
        "row_order", "call.count - begin < kTile ?", "call.count - begin < 1 ?", "address"
    ),
    "a digit ends behind the key": Fault(
        "row_order", "if (call.bit + kStepBits < 64) ", "", "address"
    ),
    "a negative index is taken for a row": Fault(
        "row_order",
        "static_cast<long long>(static_cast<const int*>(all)[i])",
        "static_cast<const u32*>(all)[i]",
    ),
    "the last bad index is told": Fault("row_order", "(call.count - i)", "(i + 1)"),
    "an old answer is kept": Fault("row_order", "if (threadIdx.x == 0) *call.bad = 0;", ""),
}


@pytest.mark.deadline(300)
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found(name):
    fault = FAULTS[name]

    def planted(text: str) -> str:
        assert fault.old in text, "the kernels have changed: the fault is none any more"
        return text.replace(fault.old, fault.new)

    timeout_s = 15 if fault.is_a_hang else 120
    found = checks_fail(fault.family, fault.mode, change=planted, timeout_s=timeout_s)
    assert found is not None
    assert found.startswith("no end") == fault.is_a_hang, found
