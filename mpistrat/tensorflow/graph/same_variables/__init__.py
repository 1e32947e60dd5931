"""Compare over the ranks which variables they create, and of which ones gradients are."""
