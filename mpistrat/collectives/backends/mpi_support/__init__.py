"""Parts of MPI that backends need besides its collectives: control, splitting, symbols, nodes."""
