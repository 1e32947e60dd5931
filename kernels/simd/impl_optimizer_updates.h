// The optimizers' update rules on vectors. Part of impl_kernel_table.h: no include guard.

#define MPISTRAT_DEVICE MPISTRAT_INLINE

MPISTRAT_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
MPISTRAT_INLINE double square_root(double x) { return __builtin_sqrt(x); }

#if defined(__x86_64__) && MPISTRAT_VECTOR_BYTES == 64
// The forms with a mask, since GCC warns of undefined bits within the others.
MPISTRAT_INLINE Vector<float> square_root(const Vector<float>& x) {
  return _mm512_maskz_sqrt_ps(0xffff, x);
}
MPISTRAT_INLINE Vector<double> square_root(const Vector<double>& x) {
  return _mm512_maskz_sqrt_pd(0xff, x);
}
#elif defined(__x86_64__) && MPISTRAT_VECTOR_BYTES == 32
MPISTRAT_INLINE Vector<float> square_root(const Vector<float>& x) { return _mm256_sqrt_ps(x); }
MPISTRAT_INLINE Vector<double> square_root(const Vector<double>& x) { return _mm256_sqrt_pd(x); }
#elif defined(__x86_64__)
MPISTRAT_INLINE Vector<float> square_root(const Vector<float>& x) { return _mm_sqrt_ps(x); }
MPISTRAT_INLINE Vector<double> square_root(const Vector<double>& x) { return _mm_sqrt_pd(x); }
#else
template <class V>
MPISTRAT_INLINE V square_root(const V& x) {
  V roots;
  for (size_t i = 0; i < sizeof x / sizeof x[0]; ++i) roots[i] = square_root(x[i]);
  return roots;
}
#endif

#include "../cuda/update_rules.cuh"

#undef MPISTRAT_DEVICE

// Arrays of type W, in which the rule computes.
template <class Rule, class W>
struct Updates {
  using V = Vector<W>;
  static constexpr size_t kLanes = kVectorBytes / sizeof(W);

  // One element, or as many as a vector has. `at` counts bytes. No loops over the slots: GCC warns
  // of those that do nothing.
  template <class T>
  static MPISTRAT_INLINE void step(const UpdateArrays& arrays, size_t at,
                                   const Numbers<T>& numbers) {
    T slots[kMaxSlots];
    if constexpr (Rule::kSlots > 0) slots[0] = load_vector<T>(arrays.old_slots[0] + at);
    if constexpr (Rule::kSlots > 1) slots[1] = load_vector<T>(arrays.old_slots[1] + at);
    if constexpr (Rule::kSlots > 2) slots[2] = load_vector<T>(arrays.old_slots[2] + at);
    const T change = Rule::change(load_vector<T>(arrays.gradient + at), slots, numbers);
    store_vector(arrays.variable + at, load_vector<T>(arrays.old_variable + at) + change);
    if constexpr (Rule::kSlots > 0) store_vector(arrays.slots[0] + at, slots[0]);
    if constexpr (Rule::kSlots > 1) store_vector(arrays.slots[1] + at, slots[1]);
    if constexpr (Rule::kSlots > 2) store_vector(arrays.slots[2] + at, slots[2]);
  }

  static void run(const UpdateArrays& arrays, size_t count, const double* numbers) {
    Numbers<W> each;
    Numbers<V> vectors;
    for (int i = 0; i < kMaxNumbers; ++i) {
      each.of[i] = static_cast<W>(numbers[i]);
      vectors.of[i] = each.of[i] - V{};  // in all lanes; a sum would make +0.0 of -0.0
    }
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) step<V>(arrays, i * sizeof(W), vectors);
    for (; i < count; ++i) step<W>(arrays, i * sizeof(W), each);
  }
};
