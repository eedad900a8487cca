"""Architecture class of a checkpoint -> family of operation lists."""

from __future__ import annotations


FAMILY_OF_ARCHITECTURE: dict[str, str] = {
    "LlamaForCausalLM": "LLAMA",
    "MistralForCausalLM": "LLAMA",
    "Qwen2ForCausalLM": "LLAMA",
    "Qwen3ForCausalLM": "LLAMA",
    "MiMoForCausalLM": "LLAMA",
    "MixtralForCausalLM": "MOE",
    "Qwen2MoeForCausalLM": "MOE",
    "Qwen3MoeForCausalLM": "MOE",
    "GptOssForCausalLM": "MOE",
    "MiniMaxM2ForCausalLM": "MOE",
    "DeepSeekForCausalLM": "DEEPSEEK",
    "DeepseekV3ForCausalLM": "DEEPSEEK",
    "KimiK25ForConditionalGeneration": "KIMIK25",
    "DeepseekV32ForCausalLM": "DEEPSEEKV32",
    "GlmMoeDsaForCausalLM": "DEEPSEEKV32",
    "DeepseekV4ForCausalLM": "DEEPSEEKV4",
    "DeepseekV41ForCausalLM": "DEEPSEEKV41",
    "KimiK3ForConditionalGeneration": "KIMIK3",
    "NemotronHForCausalLM": "NEMOTRONH",
    "Qwen3_5ForConditionalGeneration": "QWEN35",
    "Qwen3_5MoeForConditionalGeneration": "QWEN35",
    "Qwen3_5MoeForCausalLM": "QWEN35",
    "Gemma4ForConditionalGeneration": "GEMMA4MIX",
    "Llama4ForConditionalGeneration": "HYBRIDMOE",
    "MiMoV2FlashForCausalLM": "HYBRIDMOE",
    "MiniMaxM3ForCausalLM": "MINIMAXM3",
    "MiniMaxM3SparseForConditionalGeneration": "MINIMAXM3",
    "Glm5NextForConditionalGeneration": "GLM53FLASH",
    "Step3p7FlashForCausalLM": "STEP3P7",
    "MuseGlimmerForConditionalGeneration": "MUSEGLIMMER",
    "Qwen3VLForConditionalGeneration": "QWEN3VL",
    "Qwen3VLMoeForConditionalGeneration": "QWEN3VL_MOE",
    "Mistral3ForConditionalGeneration": "MISTRAL3",
    "DeciLMForCausalLM": "NEMOTRONNAS",
}

UNKNOWN_FAMILY = "UNKNOWN"

QK_NORM_ARCHITECTURES = frozenset(
    {"Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "MiniMaxM2ForCausalLM"}
)

# Families whose operation lists can be built.
GQA_DENSE = frozenset({"LLAMA"})
GQA_MOE = frozenset({"MOE"})
MLA_MOE = frozenset({"DEEPSEEK", "KIMIK25"})
BUILT_FAMILIES = GQA_DENSE | GQA_MOE | MLA_MOE
