"""Parameter servers of TensorFlow's on MPI ranks: tasks, servers, evaluators."""
