"""What carries arrays between the GPUs of ranks: NCCL, mapped memory, the host's memory."""
