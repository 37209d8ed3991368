package hw

import "smartswap/sim"

// Family groups kernels whose efficiency follows one curve.
type Family uint8

// Kernel families.
const (
	MatMul Family = iota
	Attention
	AttentionGrad
	Norm
	NormGrad
	ActivationFn // SwiGLU, GeLU and their kind
	ActivationGrad
	Rope
	Elementwise // adds, scales, copies on the device
	Cast
	Embedding
	EmbeddingGrad
	Softmax // loss: softmax, cross entropy, their gradients; unfused attention scores
	OptimizerStep
	Reduction // norms of gradients, overflow checks
	LayerNorm // Norm and NormGrad are those of RMSNorm
	LayerNormGrad
	NumFamilies
)

// WorkKind says how a Work becomes a time.
type WorkKind uint8

// Kinds of work.
const (
	// Modelled: max(flops / achieved peak, bytes / achieved bandwidth) plus a
	// fixed part, by family.
	Modelled WorkKind = iota
	// Measured: Time as it stands, whatever the device.
	Measured
	// Collective: looked up in the fabric's tables.
	Collective
	// Transfer: point to point between two ranks' devices.
	Transfer
)

// CollectiveKind is the operation of a Collective.
type CollectiveKind uint8

// Collectives.
const (
	AllReduce CollectiveKind = iota
	AllGather
	ReduceScatter
	AllToAll
	Broadcast
	NumCollectives
)

// Work is what an operator asks of the device. It is comparable.
type Work struct {
	Kind   WorkKind
	Family Family // Modelled and Measured (for slow-down beside collectives)

	Flops   int64     // floating-point operations
	Traffic sim.Bytes // bytes read from and written to HBM
	M, N, K int32     // MatMul: dimensions, K contracted; 0 = not a matrix product
	Dtype16 bool      // 16-bit tensor-core peak rather than fp32 vector peak

	Time sim.Time // Measured
	// Faulting is Time measured again in unified memory, with inputs that are
	// not on the device, and with inputs and outputs; 0 = not known.
	Faulting [2]sim.Time

	Collective CollectiveKind
	// Size of a collective is the full tensor: what an all-gather yields,
	// what a reduce-scatter or all-reduce takes in on each member. Size of a
	// transfer is what moves.
	Size sim.Bytes
	// Members of the collective, including folded ranks; >= 2.
	Members int32
	// Stride is how many devices lie from one member to the next, or from one end
	// of a transfer to the other: what tells whether servers are crossed. 0 = 1.
	Stride int32
}
