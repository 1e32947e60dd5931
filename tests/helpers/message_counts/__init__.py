"""Count the messages and bytes of each rank of a job, by phases of its program.

`build` compiles a library (interposer/) that counts at the boundary to MPI and sockets;
`counted_job` runs a program with it; the program names its phases by `in_rank.begin_phase`.
"""
