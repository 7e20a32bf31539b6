"""Hand-written kernels of the network for CPUs: fused normalisation and what it needs."""
