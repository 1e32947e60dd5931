#include "result_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>

namespace mpistrat {
namespace {

constexpr size_t kLeastBytes = 128 << 10;     // what is smaller the process has already
constexpr size_t kMostFree = 4;               // blocks, of which those given back first go first,
constexpr size_t kMostFreeBytes = 256 << 20;  // and bytes
constexpr size_t kHugeBytes = 4 << 20;        // from here on large pages are asked for
constexpr size_t kPageBytes = 4096, kHugePageBytes = 2 << 20;

struct Memory {
  void* data = nullptr;
  size_t nbytes = 0;
};

// A block that is lent out: the base of its array, and so of all views of that.
struct Loan {
  PyObject_HEAD;
  Memory memory;
};

PyTypeObject* loan_type = nullptr;

// All are used with Python's lock held.
std::deque<Memory>& free_blocks() {
  static auto* const blocks = new std::deque<Memory>;  // outlives the last array
  return *blocks;
}

Memory take(size_t nbytes) {
  std::deque<Memory>& blocks = free_blocks();
  auto best = blocks.end();
  for (auto one = blocks.begin(); one != blocks.end(); ++one) {
    const bool fits = nbytes <= one->nbytes && one->nbytes <= 2 * nbytes;
    if (fits && (best == blocks.end() || one->nbytes < best->nbytes)) best = one;
  }
  if (best != blocks.end()) {
    const Memory found = *best;
    blocks.erase(best);
    return found;
  }
  const size_t page = nbytes < kHugeBytes ? kPageBytes : kHugePageBytes;
  const size_t whole = (nbytes + page - 1) / page * page;
  void* data = std::aligned_alloc(page, whole);
  if (data && nbytes >= kHugeBytes) madvise(data, whole, MADV_HUGEPAGE);  // which may be refused
  return {data, data ? whole : 0};
}

void give_back(Memory memory) {
  std::deque<Memory>& blocks = free_blocks();
  blocks.push_back(memory);
  size_t total = 0;
  for (const Memory& one : blocks) total += one.nbytes;
  while (blocks.size() > kMostFree || total > kMostFreeBytes) {
    total -= blocks.front().nbytes;
    std::free(blocks.front().data);
    blocks.pop_front();
  }
}

void dealloc(PyObject* object) {
  give_back(reinterpret_cast<Loan*>(object)->memory);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)}, {0, nullptr}};

PyType_Spec type_spec = {"mpistrat._kernels.ResultMemory", sizeof(Loan), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyObject* lend(size_t nbytes, void** data) {
  const Memory memory = take(nbytes);
  if (!memory.data) return PyErr_NoMemory();
  auto* loan = reinterpret_cast<Loan*>(loan_type->tp_alloc(loan_type, 0));
  if (!loan) {
    give_back(memory);
    return nullptr;
  }
  loan->memory = memory;
  *data = memory.data;
  return reinterpret_cast<PyObject*>(loan);
}

}  // namespace

bool init_result_memory() {
  loan_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&type_spec));
  return loan_type != nullptr;
}

PyObject* new_result(PyArray_Descr* dtype, int ndim, const npy_intp* dims) {
  auto nbytes = static_cast<size_t>(PyDataType_ELSIZE(dtype));
  for (int i = 0; i < ndim; ++i) nbytes *= static_cast<size_t>(dims[i]);
  void* data = nullptr;
  PyObject* loan = nullptr;
  if (nbytes >= kLeastBytes && !(loan = lend(nbytes, &data))) return nullptr;
  Py_INCREF(dtype);
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, dims, nullptr, data,
                                         loan ? NPY_ARRAY_CARRAY : 0, nullptr);
  if (!array || !loan) {
    Py_XDECREF(loan);
    return array;
  }
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), loan) == 0) return array;
  Py_DECREF(array);
  return nullptr;
}

}  // namespace mpistrat
