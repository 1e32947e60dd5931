"""Parts of the carrier by NCCL: communicators, requests, reductions."""
