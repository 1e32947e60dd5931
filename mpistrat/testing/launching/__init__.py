"""Start a program under mpirun, collect what each rank writes, and end all of it."""
