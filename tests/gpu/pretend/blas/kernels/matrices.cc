// The kernels of products and sums: each is one thread in the device's process.
#include <complex>
#include <cstring>

#include "blas/product.h"
#include "language/entries.h"
#include "threads/interface.h"

namespace pretend {
namespace {

template <typename T>
T value_of(const Scalar& scalar) {
  T value;
  const void* const there = reinterpret_cast<const void*>(scalar.address);
  std::memcpy(&value, there ? there : scalar.bytes, sizeof value);
  return value;
}

template <typename T>
T* first(const Matrices& matrices, int64_t number) {
  if (matrices.is_list) return reinterpret_cast<T* const*>(matrices.address)[number];
  return reinterpret_cast<T*>(matrices.address) + number * matrices.batch;
}

template <typename T>
T conjugate(T value) {
  return value;
}
template <typename T>
std::complex<T> conjugate(std::complex<T> value) {
  return std::conj(value);
}

template <typename T, typename Sum>
Sum element(const T* element, bool is_conjugated) {
  const Sum value = static_cast<Sum>(*element);
  return is_conjugated ? conjugate(value) : value;
}

// Row i of a by column j of b; always in the same order.
template <typename T, typename Sum>
Sum inner(const Product& p, const T* a, const T* b) {
  Sum sum = 0;
  for (int64_t l = 0; l < p.k; ++l)
    sum += element<T, Sum>(a + l * p.a.column, p.a.is_conjugated) *
           element<T, Sum>(b + l * p.b.row, p.b.is_conjugated);
  return sum;
}

template <typename T, typename Sum>
void multiply(const Product& p, Sum alpha, Sum beta, int64_t number) {
  const Sum zero = 0;
  const T *const a = first<T>(p.a, number), *const b = first<T>(p.b, number);
  T* const c = first<T>(p.c, number);
  for (int64_t j = 0; j < p.n; ++j) {
    for (int64_t i = 0; i < p.m; ++i) {
      T* const to = c + i * p.c.row + j * p.c.column;
      Sum sum = beta == zero ? zero : beta * static_cast<Sum>(*to);
      if (alpha != zero) sum += alpha * inner<T, Sum>(p, a + i * p.a.row, b + j * p.b.column);
      *to = static_cast<T>(sum);
    }
  }
}

template <typename T, typename Sum = T>
void multiply_all(const Product& p) {
  const Sum alpha = value_of<Sum>(p.alpha), beta = value_of<Sum>(p.beta);
  for (int64_t number = 0; number < p.count; ++number) multiply<T, Sum>(p, alpha, beta, number);
}

void product(Product p) {
  switch (p.number) {
    case Number::kHalf:
      return multiply_all<_Float16, float>(p);
    case Number::kFloat:
      return multiply_all<float>(p);
    case Number::kDouble:
      return multiply_all<double>(p);
    case Number::kComplex:
      return multiply_all<std::complex<float>>(p);
    case Number::kDoubleComplex:
      return multiply_all<std::complex<double>>(p);
  }
}

// The share of element (i, j) of one of a sum's matrices.
template <typename T>
T share(T factor, const Matrices& of, int64_t i, int64_t j) {
  const T* const all = first<T>(of, 0);
  if (factor == T{}) return {};
  return factor * element<T, T>(all + i * of.row + j * of.column, of.is_conjugated);
}

template <typename T>
void add(const Product& p) {
  const T alpha = value_of<T>(p.alpha), beta = value_of<T>(p.beta);
  T* const c = first<T>(p.c, 0);
  for (int64_t j = 0; j < p.n; ++j)
    for (int64_t i = 0; i < p.m; ++i)
      c[i * p.c.row + j * p.c.column] = share(alpha, p.a, i, j) + share(beta, p.b, i, j);
}

void sum(Product p) {
  switch (p.number) {
    case Number::kHalf:
      return;  // geam is not for halves
    case Number::kFloat:
      return add<float>(p);
    case Number::kDouble:
      return add<double>(p);
    case Number::kComplex:
      return add<std::complex<float>>(p);
    case Number::kDoubleComplex:
      return add<std::complex<double>>(p);
  }
}

}  // namespace
}  // namespace pretend

PRETEND_ENTRY(hipblas_product, pretend::product)
PRETEND_ENTRY(hipblas_sum, pretend::sum)
