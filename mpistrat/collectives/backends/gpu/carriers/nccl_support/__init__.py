"""What the carrier by NCCL is made of: communicators, requests, reductions."""
