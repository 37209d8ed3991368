package workloads

import (
	"smartswap/hw"
	"smartswap/sim"
)

// The work of kernels from their shapes. Traffic counts every operand and
// result once, as a kernel with perfect reuse moves them. Only matrix products
// and attention count flops: all other kernels are bound by memory, and flop
// totals then mean what published formulas mean.

// matmul is the 16-bit product of an m x k and a k x n matrix.
func matmul(m, n, k int) hw.Work {
	return hw.Work{
		Family: hw.MatMul, Dtype16: true, M: int32(m), N: int32(n), K: int32(k),
		Flops:   2 * int64(m) * int64(n) * int64(k),
		Traffic: 2 * sim.Bytes(int64(m)*int64(k)+int64(k)*int64(n)+int64(m)*int64(n)),
	}
}

// matmulAccumulate is matmul whose result is added to an fp32 matrix of width
// bytes per element instead of being written.
func matmulAccumulate(m, n, k int) hw.Work {
	w := matmul(m, n, k)
	w.Traffic += sim.Bytes(int64(m)*int64(n)) * (2*4 - 2) // fp32 read and written, no 16-bit result
	return w
}

// batched is count equal matrix products in one kernel.
func batched(count, m, n, k int) hw.Work {
	w := matmul(m, n, k)
	w.Flops *= int64(count)
	w.Traffic *= sim.Bytes(count)
	return w
}

// flashAttention is fused causal attention over tokens in all; pairs is the sum
// of the squared lengths of the sequences. Two products per head, half of each
// masked. Traffic: q, k, v and the result.
func flashAttention(tokens int, pairs int64, heads, kvHeads, headDim int) hw.Work {
	width := int64(2*heads+2*kvHeads) * int64(headDim)
	return hw.Work{
		Family: hw.Attention, Dtype16: true,
		Flops:   2 * pairs * int64(heads) * int64(headDim),
		Traffic: sim.Bytes(2 * int64(tokens) * width),
	}
}

// flashAttentionGrad has five products where the forward has two, because it
// computes the scores again (FlashAttention-2, arXiv 2307.08691 section 3.1).
// Traffic: q, k, v, the result and its gradient in, three gradients out.
func flashAttentionGrad(tokens int, pairs int64, heads, kvHeads, headDim int) hw.Work {
	w := flashAttention(tokens, pairs, heads, kvHeads, headDim)
	w.Family = hw.AttentionGrad
	w.Flops = w.Flops / 2 * 5
	w.Traffic = sim.Bytes(2 * int64(tokens) * int64(4*heads+4*kvHeads) * int64(headDim))
	return w
}

// moving is a kernel bound by memory that moves bytes per element.
func moving(f hw.Family, elements int64, bytes int64) hw.Work {
	return hw.Work{Family: f, Traffic: sim.Bytes(elements * bytes)}
}

// collective is one over members devices; size is the full tensor.
func collective(kind hw.CollectiveKind, size sim.Bytes, members int) hw.Work {
	return hw.Work{Kind: hw.Collective, Collective: kind, Size: size, Members: int32(members)}
}
