#ifndef MPISTRAT_OPTIMIZER_UPDATES_H_
#define MPISTRAT_OPTIMIZER_UPDATES_H_

// The update rules of the optimizers, on arrays of the host: each value is read and written once.
// Functions of their arguments alone, safe to call from many threads.
//
// Every instruction set gives the same bits (of a NaN only that it is one), which are those of
// mpistrat/tables/update_rules.py and of the kernels for GPUs (kernels/cuda/updates.cu).

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// In the order of mpistrat/tables/native_updates.py; what each one's slots and numbers are is in
// kernels/cuda/update_rules.cuh.
enum MpistratRule {
  MPISTRAT_DESCENT,
  MPISTRAT_MOMENTUM,
  MPISTRAT_NESTEROV,
  MPISTRAT_ADAGRAD,
  MPISTRAT_ADAM,
  MPISTRAT_AMSGRAD,
  MPISTRAT_NUM_RULES
};

enum { MPISTRAT_MAX_SLOTS = 3, MPISTRAT_MAX_NUMBERS = 4 };

// A rule, and its numbers: all of them are read, also those that it does not have.
typedef struct {
  int rule;
  double numbers[MPISTRAT_MAX_NUMBERS];
} MpistratUpdate;

// How many slots a rule keeps of each variable; -1 if it is no MpistratRule.
int mpistrat_num_slots(int rule);

// The dtype in which variables of `dtype` are updated, and which their slots have: float32 for half
// types; -1 for what is not floating.
int mpistrat_slot_dtype(int dtype);

// One variable with what belongs to it: arrays of `count` elements, aligned as these are.
typedef struct {
  void* variable;            // written
  const void* old_variable;  // read; may be `variable`
  int dtype;                 // of both, a floating one
  const void* gradient;      // may be `old_variable`
  int gradient_dtype;        // any floating one
  // As many as the rule has, of mpistrat_slot_dtype(dtype): written, and read. Each old one may be
  // the one that is written in its place.
  void* slots[MPISTRAT_MAX_SLOTS];
  const void* old_slots[MPISTRAT_MAX_SLOTS];
  size_t count;
} MpistratUpdateArrays;

// Update a variable, and change its slots. Half types are rounded to nearest even, once. No arrays
// overlap but those that may be the same.
void mpistrat_update(const MpistratUpdate* update, const MpistratUpdateArrays* all);

#ifdef __cplusplus
}
#endif

#endif  // MPISTRAT_OPTIMIZER_UPDATES_H_
