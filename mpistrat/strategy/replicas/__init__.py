"""The replicas of one rank: their context, their threads, their GPUs."""
