#ifndef MPISTRAT_TYPES_H_
#define MPISTRAT_TYPES_H_

// The numbers that stand for dtypes and reductions in every C function of the kernels. They cross
// process boundaries and are repeated in Python: append, never renumber. Valid C and C++.

enum MpistratDtype {
  MPISTRAT_BOOL = 0,  // one byte; any value but 0 is true, results are 0 or 1
  MPISTRAT_INT8 = 1,
  MPISTRAT_INT16 = 2,
  MPISTRAT_INT32 = 3,
  MPISTRAT_INT64 = 4,
  MPISTRAT_UINT8 = 5,
  MPISTRAT_UINT16 = 6,
  MPISTRAT_UINT32 = 7,
  MPISTRAT_UINT64 = 8,
  MPISTRAT_FLOAT16 = 9,
  MPISTRAT_BFLOAT16 = 10,
  MPISTRAT_FLOAT32 = 11,
  MPISTRAT_FLOAT64 = 12,
  MPISTRAT_COMPLEX64 = 13,
  MPISTRAT_COMPLEX128 = 14
};

enum MpistratOp {
  MPISTRAT_SUM = 0,
  MPISTRAT_PROD = 1,
  MPISTRAT_MIN = 2,
  MPISTRAT_MAX = 3,
  MPISTRAT_AND = 4,
  MPISTRAT_OR = 5,
  MPISTRAT_XOR = 6
};

#endif  // MPISTRAT_TYPES_H_
