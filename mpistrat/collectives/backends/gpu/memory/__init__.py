"""Memory on GPUs: mapped by other ranks, registered, packed, summed, filled from the host."""
