"""A data-parallel training step without a network: simulated computation, real communication."""
