// nanobind's own sources, compiled with ours: its package brings no library.

#include <nb_combined.cpp>
