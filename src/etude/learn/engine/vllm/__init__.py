"""vLLM as the engine of the rl stage (docs/vllm.md)."""
