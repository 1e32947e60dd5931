"""Carriers of arrays between GPUs: NCCL, mapped memory, the host's memory."""
