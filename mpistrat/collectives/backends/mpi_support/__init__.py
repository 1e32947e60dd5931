"""What the backends need of MPI besides its collectives: control, splitting, symbols, nodes."""
