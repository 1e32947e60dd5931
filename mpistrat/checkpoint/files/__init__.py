"""The files of a checkpoint: tensors, the index, and which checkpoint is the latest."""
