"""Find the objects that a checkpoint saves, their names, and their tensors."""
