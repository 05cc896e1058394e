"""The network: attention, mixture of experts, Hugging Face checkpoints in and out. Modules know shapes, never meshes."""
