"""Read and change variables that parameter servers keep: pulls and pushes."""
