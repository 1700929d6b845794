"""GPUs through NVML, without torch and without a CUDA context."""
