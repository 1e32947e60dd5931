"""All-reduces of short arrays on GPUs by the host's memory."""
