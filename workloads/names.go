package workloads

// Names of a decoder's parameters, storages and operators. They are constants,
// so that generating a program interns nothing and every program of every
// worker means the same by an id. Operator names are those that the Ascend
// PyTorch stack shows in a profile.
const (
	// Parameters of the embedding, a layer and the head; also their labels.
	pEmbedding NameID = iota
	pPositions
	pNorm1
	pNorm1Bias
	pQKV
	pQKVBias
	pQueryNorm
	pKeyNorm
	pProj
	pProjBias
	pNorm2
	pNorm2Bias
	pUp
	pUpBias
	pDown
	pDownBias
	pRouter
	pExpertUp
	pExpertDown
	pQKVAdapterDown
	pQKVAdapterUp
	pProjAdapterDown
	pProjAdapterUp
	pFinalNorm
	pFinalNormBias
	pHead

	// Labels of other storages.
	lParams
	lGrads
	lMaster
	lExpAvg
	lExpAvgSq
	lAverage
	lGathered
	lMask
	lRotary
	lTokens
	lEmbedded
	lHidden
	lStats
	lNormOut
	lQKV
	lQuery
	lKey
	lValue
	lRotaryCast
	lScores
	lProbs
	lDropout
	lAttention
	lProj
	lUp
	lGate
	lAct
	lDown
	lAdapter
	lRouter
	lRoute
	lRows
	lLogits
	lLogits32
	lLoss
	lGradient
	lNormValue
	lShard

	// Operators.
	oCopy
	oClone
	oCast
	oAdd
	oMul
	oCat
	oZero
	oSum
	oEmbedding
	oEmbeddingGrad
	oRMSNorm
	oRMSNormGrad
	oLayerNorm
	oLayerNormGrad
	oMatmul
	oMatmulAccumulate
	oRotary
	oRotaryGrad
	oAttention
	oAttentionGrad
	oBMM
	oSoftmax
	oMaskedFill
	oUnscale
	oSoftmaxGrad
	oDropout
	oDropoutGrad
	oBiasDropoutAdd
	oSwiGLU
	oSwiGLUGrad
	oSiLU
	oSiLUGrad
	oMulGrad
	oGELU
	oGELUGrad
	oCrossEntropy
	oCrossEntropyGrad
	oNorm
	oAdamW
	oLerp
	oCountNonzero
	oToHost
	oTopK
	oTopKGrad
	oCount
	oPermute
	oPermuteGrad
	oUnpermute
	oUnpermuteGrad
	oAllGather
	oReduceScatter
	oAllReduce
	oSend
	oReceive
	oView
	oMax
	oSub
	oGather
	oExp
	oDiv
	numNames
)

// numParams is the number of parameter names, which come first.
const numParams = pHead + 1

var decoderNames = [numNames]string{
	pEmbedding: "embedding.weight", pPositions: "positions.weight",
	pNorm1: "layer.norm1.weight", pNorm1Bias: "layer.norm1.bias", pQKV: "layer.qkv.weight", pQKVBias: "layer.qkv.bias",
	pQueryNorm: "layer.q_norm.weight", pKeyNorm: "layer.k_norm.weight", pProj: "layer.proj.weight", pProjBias: "layer.proj.bias",
	pNorm2: "layer.norm2.weight", pNorm2Bias: "layer.norm2.bias", pUp: "layer.up.weight", pUpBias: "layer.up.bias",
	pDown: "layer.down.weight", pDownBias: "layer.down.bias",
	pRouter: "layer.router.weight", pExpertUp: "layer.expert.up.weight", pExpertDown: "layer.expert.down.weight",
	pQKVAdapterDown: "layer.qkv.lora_a", pQKVAdapterUp: "layer.qkv.lora_b", pProjAdapterDown: "layer.proj.lora_a", pProjAdapterUp: "layer.proj.lora_b",
	pFinalNorm: "final_norm.weight", pFinalNormBias: "final_norm.bias", pHead: "head.weight",

	lParams: "params", lGrads: "main_grads", lMaster: "master", lExpAvg: "exp_avg", lExpAvgSq: "exp_avg_sq", lAverage: "average",
	lGathered: "gathered", lMask: "attention_mask", lRotary: "rotary_table", lTokens: "batch", lEmbedded: "embedded", lHidden: "hidden",
	lStats: "layer.stats", lNormOut: "layer.norm_out", lQKV: "layer.qkv", lQuery: "layer.query", lKey: "layer.key", lValue: "layer.value",
	lRotaryCast: "layer.rotary_cast", lScores: "layer.scores", lProbs: "layer.probs", lDropout: "layer.dropout_mask", lAttention: "layer.attention",
	lProj: "layer.proj", lUp: "layer.up", lGate: "layer.gate", lAct: "layer.act", lDown: "layer.down",
	lAdapter: "layer.lora", lRouter: "layer.router", lRoute: "layer.route", lRows: "layer.rows",
	lLogits: "logits", lLogits32: "logits_fp32", lLoss: "loss", lGradient: "gradient", lNormValue: "grad_norm", lShard: "grad_shard",

	oCopy: "aten::copy_", oClone: "aten::clone", oCast: "npu::_npu_dtype_cast", oAdd: "aten::add", oMul: "aten::mul", oCat: "aten::cat",
	oZero: "aten::zero_", oSum: "aten::sum", oEmbedding: "aten::embedding", oEmbeddingGrad: "aten::embedding_dense_backward",
	oRMSNorm: "npu::npu_rms_norm", oRMSNormGrad: "npu::npu_rms_norm_backward",
	oLayerNorm: "aten::native_layer_norm", oLayerNormGrad: "aten::native_layer_norm_backward",
	oMatmul: "aten::matmul", oMatmulAccumulate: "npu::npu_matmul_add_fp32",
	oRotary: "npu::npu_rotary_mul", oRotaryGrad: "npu::npu_rotary_mul_backward",
	oAttention: "npu::npu_fusion_attention", oAttentionGrad: "npu::npu_fusion_attention_grad",
	oBMM: "aten::bmm", oSoftmax: "npu::npu_scaled_masked_softmax", oMaskedFill: "aten::masked_fill_", oUnscale: "aten::_amp_foreach_non_finite_check_and_unscale_", oSoftmaxGrad: "npu::npu_scaled_masked_softmax_backward",
	oDropout: "npu::_npu_dropout", oDropoutGrad: "npu::npu_dropout_backward", oBiasDropoutAdd: "bias_dropout_add",
	oSwiGLU: "npu::npu_swiglu", oSwiGLUGrad: "npu::npu_swiglu_backward", oSiLU: "aten::silu", oSiLUGrad: "aten::silu_backward",
	oMulGrad: "aten::mul_backward", oGELU: "aten::gelu", oGELUGrad: "aten::gelu_backward",
	oCrossEntropy: "vocab_parallel_cross_entropy", oCrossEntropyGrad: "vocab_parallel_cross_entropy_backward",
	oNorm: "aten::linalg_vector_norm", oAdamW: "npu::npu_apply_adam_w", oLerp: "aten::lerp_", oCountNonzero: "aten::count_nonzero", oToHost: "aten::_to_copy",
	oTopK: "npu::npu_moe_gating_top_k_softmax", oTopKGrad: "topk_softmax_backward", oCount: "aten::bincount",
	oPermute: "npu::npu_moe_token_permute", oPermuteGrad: "npu::npu_moe_token_permute_grad",
	oUnpermute: "npu::npu_moe_token_unpermute", oUnpermuteGrad: "npu::npu_moe_token_unpermute_grad",
	oAllGather: "c10d::_allgather_base_", oReduceScatter: "c10d::_reduce_scatter_base_", oAllReduce: "c10d::allreduce_",
	oSend: "c10d::send", oReceive: "c10d::recv_",
	oView: "aten::view", oMax: "aten::max", oSub: "aten::sub_", oGather: "aten::gather", oExp: "aten::exp_", oDiv: "aten::div_",
}

// newDecoderNames makes the table in which every constant above is its own id.
func newDecoderNames() *Names {
	n := NewNames()
	for _, s := range decoderNames {
		n.ID(s)
	}
	return n
}
