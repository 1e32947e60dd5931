// The operations of TensorFlow's CPU devices, in one library that Python compiles when the first of
// them is used (mpistrat/tensorflow/graph/native_library.py): of the 12 s that each of them would
// take alone, 10 are TensorFlow's headers.

#include "call_op.h"
#include "digest_op.h"
#include "rows_op.h"
